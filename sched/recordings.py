"""Public request traces as workloads, told apart by content.

Two formats are read, plain or gzip, as a stream:

- Azure LLM inference: CSV with the columns TIMESTAMP, ContextTokens and
  GeneratedTokens, in any order, others ignored;
- Mooncake: JSON lines with timestamp (ms), input_length and output_length; and, if
  you like, `priority`, `deadline_s` (seconds, on the clock that is 0 at the first
  row) and `max_queue_time_s`, as a `Request` has them.

Blank lines are ignored. A row is bad if a figure is missing or not a number, if
either length is below 1 (every request yields a token), or if it arrives
before the row above it.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from math import inf, isfinite
from typing import Any, Final, NamedTuple

from batchproof.sched.errors import InputError
from batchproof.sched.prompts import PromptRing
from batchproof.sched.request import Request
from batchproof.sched.request_gen import (
    DEFAULT_USERS,
    Arrival,
    Assignment,
    check_positive,
    random_stream,
    user_names,
)
from batchproof.sched.text_files import numbered_lines

TOKENS_MAX: Final = 10_000_000
"""The longest prompt or output that a row may ask for."""


class Row(NamedTuple):
    """One request of a trace; its time is a datetime in Azure's format, seconds in Mooncake's."""

    time: Any
    prompt_len: int
    output_len: int
    priority: int = 0
    deadline_s: float | None = None
    """On the clock that is 0 at the first row, before gaps are stretched."""
    max_queue_time_s: float | None = None


class _BadRowError(Exception):
    def __init__(self, column: str, found: object, expected: str) -> None:
        super().__init__(f"{column}: found {found!r:.80}, expected {expected}")


class Trace:
    """A trace file as a workload: iterate it once; the rows are read as they are asked for.

    The user of each request is drawn by `assign` and `seed`. `limit` stops after
    so many requests. Arrivals count from the first row, each gap multiplied by
    `time_scale`. Raises `InputError` for a file that is not a trace, and, while
    it is read, for the first bad row, unless `skip_bad_rows` counts them.
    """

    def __init__(
        self,
        path: str,
        *,
        users: int = DEFAULT_USERS,
        assign: Assignment = "zipf",
        seed: int = 0,
        limit: int | None = None,
        time_scale: float = 1.0,
        skip_bad_rows: bool = False,
    ) -> None:
        if limit is not None and limit < 1:
            raise InputError(f"limit is {limit}, not an int of at least 1")
        check_positive("time_scale", time_scale)
        self.path = path
        self.requests = 0
        """Requests yielded so far."""
        self.bad_rows = 0
        """Bad rows skipped so far."""
        self._limit = limit
        self._time_scale = time_scale
        self._skip_bad_rows = skip_bad_rows
        self._ring = PromptRing(seed)
        self._starts = random_stream(seed, "prompts")
        self._users = user_names(users, assign, seed)
        self._lines = numbered_lines(path)
        self.format, self._parse, self._first_row = _detect(path, self._lines)

    def __iter__(self) -> Iterator[Arrival]:
        first: Row | None = None
        before = 0.0
        for row, at_line in self._rows():
            first = first or row
            try:
                at_s = _seconds_between(first, row)
                if at_s < before:
                    raise _BadRowError("timestamp", str(row.time), "none before the row above it")
            except _BadRowError as error:
                self._bad_row(at_line, error)
                continue
            before = at_s
            self.requests += 1
            arrives_at_s = round(at_s * self._time_scale, 6)
            yield Arrival(arrives_at_s, self._request(row, arrives_at_s - at_s))
            if self.requests == self._limit:
                return
        if not self.requests:
            raise InputError(f"{self.path}: has no requests ({self.bad_rows} bad rows skipped)")

    def _rows(self) -> Iterator[tuple[Row, int]]:
        lines = self._lines if self._first_row is None else _chain(self._first_row, self._lines)
        for number, line in lines:
            try:
                yield self._parse(line), number
            except _BadRowError as error:
                self._bad_row(number, error)

    def _bad_row(self, number: int, error: _BadRowError) -> None:
        if not self._skip_bad_rows:
            raise InputError(
                f"{self.path}: line {number}, {error}; --skip-bad-rows leaves such rows out"
            ) from None
        self.bad_rows += 1

    def _request(self, row: Row, later_s: float) -> Request:
        """Return the request of a row; its deadline is later by as much as its arrival."""
        start = int(self._starts.random() * self._ring.size)
        prompt = self._ring.prompt(start, row.prompt_len)
        return Request(
            next(self._users),
            prompt,
            row.output_len,
            f"r{self.requests}",
            priority=row.priority,
            deadline_s=None if row.deadline_s is None else row.deadline_s + later_s,
            max_queue_time_s=row.max_queue_time_s,
        )


_Parser = Callable[[str], Row]
_NumberedLine = tuple[int, str]


def _detect(path: str, lines: Iterator[_NumberedLine]) -> tuple[str, _Parser, _NumberedLine | None]:
    """Return the format's name, its parser, and the first line if it is a row already."""
    number, line = next(lines)
    if line.startswith("{") and '"input_length"' in line:
        return "mooncake-jsonl", _parse_mooncake, (number, line)
    header = [name.strip() for name in line.split(",")]
    if set(_AZURE_COLUMNS) <= set(header):
        return "azure-csv", _azure_parser(header), None
    raise InputError(
        f"{path}: line {number} is {line!r:.80}: neither the header of an Azure trace "
        f"({','.join(_AZURE_COLUMNS)}) nor a JSON object of a Mooncake trace"
    )


def _chain(first: _NumberedLine, rest: Iterator[_NumberedLine]) -> Iterator[_NumberedLine]:
    yield first
    yield from rest


_AZURE_COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def _azure_parser(header: list[str]) -> _Parser:
    places = {name: header.index(name) for name in _AZURE_COLUMNS}
    columns = {name: f"column {place + 1} ({name})" for name, place in places.items()}
    width = len(header)

    def parse(line: str) -> Row:
        cells = line.split(",")
        if len(cells) != width:
            raise _BadRowError(f"column {len(cells)}", line, f"{width} columns; was the file cut?")
        stamp, prompt, output = ((columns[name], cells[places[name]]) for name in _AZURE_COLUMNS)
        return Row(_moment(*stamp), _digits(*prompt), _digits(*output))

    return parse


def _moment(column: str, text: str) -> datetime:
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        raise _BadRowError(column, text, "a time like 2023-11-16 18:15:46.680590") from None


def _digits(column: str, text: str) -> int:
    text = text.strip()
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(TOKENS_MAX))
    return _length(column, int(text) if is_number else text)


def _length(column: str, value: object) -> int:
    if type(value) is not int or not 1 <= value <= TOKENS_MAX:
        raise _BadRowError(column, value, f"an int from 1 to {TOKENS_MAX}")
    return value


def _parse_mooncake(line: str) -> Row:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        column = f"column {getattr(error, 'colno', 1)}"
        raise _BadRowError(column, line, "a JSON object; was the file cut?") from None
    if not isinstance(row, dict):
        raise _BadRowError("column 1", line, "a JSON object")
    return Row(
        _seconds(row),
        _length("input_length", _member(row, "input_length")),
        _length("output_length", _member(row, "output_length")),
        _priority(row),
        *(_optional_seconds(row, name) for name in ("deadline_s", "max_queue_time_s")),
    )


def _seconds(row: Mapping[str, object]) -> float:
    value = _member(row, "timestamp")
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise _BadRowError("timestamp", value, "a number of milliseconds")
    return value / 1e3


def _priority(row: Mapping[str, object]) -> int:
    value = row.get("priority", 0)
    if type(value) is not int:
        raise _BadRowError("priority", value, "an int; higher is more urgent")
    return value


def _optional_seconds(row: Mapping[str, object], name: str) -> float | None:
    value = row.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < inf:
        raise _BadRowError(name, value, "a number of seconds above 0")
    return value


def _member(row: Mapping[str, object], name: str) -> object:
    if name not in row:
        raise _BadRowError(name, ", ".join(row), f"a member {name}")
    return row[name]


def _seconds_between(first: Row, row: Row) -> float:
    try:
        gap = row.time - first.time
    except TypeError:  # one time with a UTC offset and one without
        raise _BadRowError("timestamp", str(row.time), f"a time like {first.time}") from None
    return gap.total_seconds() if not isinstance(gap, float) else gap
