"""Files of lines: read as a stream, gzip or not, and written whole or not at all.

Every fault of a file becomes an `InputError` that names the file, what is
wrong with it and what to do.
"""

import gzip
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, cast

from batchproof.sched.errors import InputError

LINE_BYTES_MAX: Final = 16 * 2**20
"""A longer line is taken for a file that has no lines."""
_GZIP_MAGIC: Final = b"\x1f\x8b"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


def numbered_lines(path: str) -> Iterator[tuple[int, str]]:
    """Yield the number and text of every line that is not blank; gzip is seen by content.

    Raises `InputError` for a file that is missing, a directory, unreadable,
    empty, binary, or cut inside its compressed data.
    """
    any_line = False
    with _opened(path) as file:
        for number, raw in enumerate(_raw_lines(path, file), start=1):
            line = _decoded(path, number, raw)
            if line:
                any_line = True
                yield number, line
    if not any_line:
        raise InputError(f"{path}: the file is empty")


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    """Open a file that may be gzip; it is not sought in, so that a pipe will do."""
    try:
        with open(path, "rb") as file:
            if file.peek(2)[:2] == _GZIP_MAGIC:
                with gzip.open(file) as unzipped:
                    yield cast(BinaryIO, unzipped)
            else:
                yield file
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a directory; give a file") from None
    except OSError as error:
        if isinstance(error, gzip.BadGzipFile):
            raise InputError(f"{path}: its gzip data is damaged ({error})") from None
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None


def _raw_lines(path: str, file: BinaryIO) -> Iterator[bytes]:
    try:
        while line := file.readline(LINE_BYTES_MAX):
            if len(line) == LINE_BYTES_MAX:
                raise InputError(
                    f"{path}: has a line of {LINE_BYTES_MAX} bytes or more; it is not text"
                )
            yield line
    except EOFError:
        raise InputError(
            f"{path}: its gzip data ends too early: the file was cut; get it again"
        ) from None
    except zlib.error as error:
        raise InputError(f"{path}: its gzip data is damaged ({error})") from None


def _decoded(path: str, number: int, raw: bytes) -> str:
    try:
        if b"\0" in raw:
            raise ValueError
        return raw.removeprefix(_BYTE_ORDER_MARK if number == 1 else b"").decode().strip()
    except ValueError:
        raise InputError(
            f"{path}: line {number} is not text in UTF-8; the file is binary"
        ) from None


@contextmanager
def whole_file(path: str) -> Iterator[BinaryIO]:
    """Open a file to write that appears, complete, when the block ends without an error.

    Gzip if the name ends in `.gz`, with the same bytes for the same content.
    Raises `InputError` where it cannot be written; nothing is left behind then.
    """
    target = Path(os.path.realpath(path))
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        if os.path.exists(path) and not _may_be_replaced(os.stat(path)):
            raise InputError(f"{path}: exists and is not a regular file; give another name")
        with open(partial, "wb") as plain:
            if target.suffix == ".gz":
                with gzip.GzipFile(filename="", mode="wb", fileobj=plain, mtime=0) as zipped:
                    yield cast(BinaryIO, zipped)
            else:
                yield plain
        partial.replace(target)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from None
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def _may_be_replaced(there: os.stat_result) -> bool:
    """Tell whether a file is regular and not what this process prints to, as /dev/stdout may be."""
    own = []
    for descriptor in (0, 1, 2):
        with suppress(OSError):
            own.append(os.fstat(descriptor))
    return stat.S_ISREG(there.st_mode) and not any(os.path.samestat(there, it) for it in own)
