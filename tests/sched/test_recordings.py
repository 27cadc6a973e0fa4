"""Public traces: both formats, by content, and everything that can be wrong with a file."""

import gzip
import os
import threading
from collections import Counter
from pathlib import Path

import pytest

from batchproof.sched.errors import InputError
from batchproof.sched.recordings import Trace

TRACES = Path(__file__).parents[3] / "shared" / "traces"

AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:51.2224670,879,55
"""
MOONCAKE = """\
{"timestamp": 5000, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}
{"timestamp": 5000, "input_length": 12, "output_length": 490, "hash_ids": [0]}
{"timestamp": 8500, "input_length": 90000, "output_length": 1, "hash_ids": []}
"""


@pytest.fixture
def trace(tmp_path):
    """Write a trace file, and open it."""

    def write(content, name="any.name", **options):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return Trace(str(path), **options)

    return write


def rows(trace):
    return [(at_s, len(request.prompt), request.max_tokens) for at_s, request in trace]


AZURE_ROWS = [(0.0, 374, 44), (4.314579, 396, 109), (4.541877, 879, 55)]
MOONCAKE_ROWS = [(0.0, 6758, 500), (0.0, 12, 490), (3.5, 90000, 1)]


@pytest.mark.parametrize(
    ("content", "form", "expected"),
    [
        (AZURE, "azure-csv", AZURE_ROWS),
        (AZURE.replace("\n", "\r\n").removesuffix("\r\n"), "azure-csv", AZURE_ROWS),
        ("\ufeff" + AZURE.replace("\n", "\n\n"), "azure-csv", AZURE_ROWS),
        (MOONCAKE, "mooncake-jsonl", MOONCAKE_ROWS),
        (gzip.compress(AZURE.encode()), "azure-csv", AZURE_ROWS),
        (gzip.compress(MOONCAKE.encode()), "mooncake-jsonl", MOONCAKE_ROWS),
    ],
    ids=["azure", "crlf", "bom-and-blank-lines", "mooncake", "azure-gzip", "mooncake-gzip"],
)
def test_formats_are_told_apart_by_content(trace, content, form, expected):
    read = trace(content)
    assert read.format == form
    assert rows(read) == expected
    assert (read.requests, read.bad_rows) == (3, 0)


def test_columns_may_stand_in_any_order_with_others_between(trace):
    read = trace("Model,GeneratedTokens,TIMESTAMP,ContextTokens\nx,7,2024-05-10 00:00:00+00:00,9\n")
    assert rows(read) == [(0.0, 9, 7)]


def test_requests_have_users_ids_and_prompts_by_seed(trace):
    read = trace(AZURE, users=2, assign="round-robin")
    requests = [request for _, request in read]
    assert [request.user_id for request in requests] == ["u1", "u2", "u1"]
    assert [request.request_id for request in requests] == ["r1", "r2", "r3"]
    again = [request.prompt for _, request in trace(AZURE)]
    assert [request.prompt for request in requests] == again
    assert [request.prompt for _, request in trace(AZURE, seed=1)] != again


def test_limit_stops_and_time_scale_stretches(trace):
    assert rows(trace(AZURE, limit=2, time_scale=2.0)) == [(0.0, 374, 44), (8.629158, 396, 109)]


def test_the_rows_after_the_limit_are_not_looked_at(trace):
    assert len(rows(trace(AZURE + "rubbish\n", limit=3))) == 3


def azure_row(row):
    return f"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1,1\n{row}\n"


def mooncake_row(row):
    return f'{{"timestamp": 7, "input_length": 1, "output_length": 1}}\n{row}\n'


BAD_ROWS = {
    "not-a-time": (
        azure_row("yesterday,1,1"),
        "line 3, column 1 (TIMESTAMP): found 'yesterday', "
        "expected a time like 2023-11-16 18:15:46.680590",
    ),
    "not-a-number": (
        azure_row("2023-11-16 18:15:47,many,1"),
        "line 3, column 2 (ContextTokens): found 'many', expected an int from 1 to 10000000",
    ),
    "negative": (
        azure_row("2023-11-16 18:15:47,-4,1"),
        "line 3, column 2 (ContextTokens): found '-4', expected an int from 1 to 10000000",
    ),
    "no-token-generated": (
        azure_row("2023-11-16 18:15:47,4,0"),
        "line 3, column 3 (GeneratedTokens): found 0, expected an int from 1 to 10000000",
    ),
    "beyond-all-reason": (
        azure_row("2023-11-16 18:15:47,10000001,1"),
        "line 3, column 2 (ContextTokens): found 10000001, expected an int from 1 to 10000000",
    ),
    "a-number-of-5000-digits": (
        azure_row("2023-11-16 18:15:47," + "9" * 5000 + ",1"),
        "line 3, column 2 (ContextTokens): found '" + "9" * 79,
    ),
    "empty-cell": (
        azure_row("2023-11-16 18:15:47,,1"),
        "line 3, column 2 (ContextTokens): found '', expected an int from 1 to 10000000",
    ),
    "cut-in-the-middle": (
        azure_row("2023-11-16 18:15:47,12"),
        "line 3, column 2: found '2023-11-16 18:15:47,12', expected 3 columns; was the file cut?",
    ),
    "a-column-too-many": (azure_row("2023-11-16 18:15:47,1,1,1"), "line 3, column 4: found"),
    "back-in-time": (
        azure_row("2023-11-16 18:15:45,1,1"),
        "line 3, timestamp: found '2023-11-16 18:15:45', expected none before the row above it",
    ),
    "back-in-time-though-after-the-first": (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46,1,1\n2023-11-16 18:15:49,1,1\n2023-11-16 18:15:48,1,1\n",
        "line 4, timestamp: found '2023-11-16 18:15:48', expected none before the row above it",
    ),
    "one-time-zone-of-two": (
        azure_row("2023-11-16 18:15:47+00:00,1,1"),
        "line 3, timestamp: found '2023-11-16 18:15:47+00:00', "
        "expected a time like 2023-11-16 18:15:46",
    ),
    "json-cut": (
        mooncake_row('{"timestamp": 8, "input_le'),
        'line 2, column 18: found \'{"timestamp": 8, "input_le\', '
        "expected a JSON object; was the file cut?",
    ),
    "json-member-missing": (
        mooncake_row('{"timestamp": 8, "input_length": 1}'),
        "line 2, output_length: found 'timestamp, input_length', expected a member output_length",
    ),
    "json-not-an-object": (mooncake_row("[8, 1, 1]"), "line 2, column 1: found '[8, 1, 1]'"),
    "json-float": (
        mooncake_row('{"timestamp": 8, "input_length": 1.5, "output_length": 1}'),
        "line 2, input_length: found 1.5, expected an int from 1 to 10000000",
    ),
    "json-zero": (
        mooncake_row('{"timestamp": 8, "input_length": 1, "output_length": 0}'),
        "line 2, output_length: found 0, expected an int from 1 to 10000000",
    ),
    "json-time-is-text": (
        mooncake_row('{"timestamp": "8", "input_length": 1, "output_length": 1}'),
        "line 2, timestamp: found '8', expected a number of milliseconds",
    ),
    "json-time-is-nan": (
        mooncake_row('{"timestamp": NaN, "input_length": 1, "output_length": 1}'),
        "line 2, timestamp: found nan, expected a number of milliseconds",
    ),
    "json-time-is-true": (
        mooncake_row('{"timestamp": true, "input_length": 1, "output_length": 1}'),
        "line 2, timestamp: found True, expected a number of milliseconds",
    ),
    "json-nested-without-end": (mooncake_row('{"timestamp":' + "[" * 100_000), "line 2, column 1"),
    "json-back-in-time": (
        mooncake_row('{"timestamp": 6.5, "input_length": 1, "output_length": 1}'),
        "line 2, timestamp: found '0.0065', expected none before the row above it",
    ),
}


@pytest.mark.parametrize(("content", "message"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_bad_row_is_named_by_line_and_column(trace, content, message):
    read = trace(content)
    with pytest.raises(InputError) as refused:
        rows(read)
    assert message in str(refused.value)
    assert str(refused.value).startswith(read.path + ": line ")
    assert str(refused.value).endswith("; --skip-bad-rows leaves such rows out")


@pytest.mark.parametrize("content", [content for content, _ in BAD_ROWS.values()], ids=BAD_ROWS)
def test_bad_rows_are_counted_when_they_may_be_skipped(trace, content):
    read = trace(content, skip_bad_rows=True)
    good = content.count("\n") - content.startswith("TIMESTAMP") - 1
    assert len(rows(read)) == good
    assert (read.requests, read.bad_rows) == (good, 1)


def test_a_row_after_a_skipped_one_arrives_when_it_says(trace):
    content = azure_row("2023-11-16 18:20:00,0,1") + "2023-11-16 18:15:48,5,6\n"
    assert rows(trace(content, skip_bad_rows=True)) == [(0.0, 1, 1), (2.0, 5, 6)]


BAD_FILES = {
    "empty": (b"", "the file is empty"),
    "blank": (b"\n\n", "the file is empty"),
    "empty-gzip": (gzip.compress(b""), "the file is empty"),
    "binary": (b"\x7fELF\0\1", "line 1 is not text in UTF-8; the file is binary"),
    "latin-1": ("é\n".encode("latin-1"), "line 1 is not text in UTF-8"),
    "utf-16": (AZURE.encode("utf-16"), "line 1 is not text in UTF-8"),
    "binary-further-down": (azure_row("\0").encode(), "line 3 is not text in UTF-8"),
    "one-endless-line": (b"x" * 2**24, "has a line of 16777216 bytes or more; it is not text"),
    "gzip-cut": (gzip.compress(AZURE.encode())[:-12], "its gzip data ends too early: the file"),
    "gzip-cut-in-its-header": (gzip.compress(b"")[:5], "its gzip data ends too early"),
    "gzip-damaged": (gzip.compress(b"", mtime=0)[:10] + b"\xff" * 30, "its gzip data is damaged"),
    "gzip-in-its-first-bytes-only": (b"\x1f\x8b" + b"x" * 30, "its gzip data is damaged"),
    "neither-format": (
        b"a,b,c\n1,2,3\n",
        "line 1 is 'a,b,c': neither the header of an Azure trace "
        "(TIMESTAMP,ContextTokens,GeneratedTokens) nor a JSON object of a Mooncake trace",
    ),
    "another-json": (b'{"event": "run"}\n', "neither the header of an Azure trace"),
    "no-rows": (b"TIMESTAMP,ContextTokens,GeneratedTokens\n", "has no requests (0 bad rows"),
}


@pytest.mark.parametrize(("content", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_file_that_is_no_trace_says_what_it_is(trace, content, message):
    with pytest.raises(InputError) as refused:
        rows(trace(content))
    assert message in str(refused.value)


def test_skipping_bad_rows_does_not_skip_a_file_that_was_cut(trace):
    with pytest.raises(InputError, match="ends too early"):
        rows(trace(gzip.compress(AZURE.encode() * 50)[:-12], skip_bad_rows=True))


def test_only_bad_rows_are_no_trace(trace):
    with pytest.raises(InputError, match=r"has no requests \(1 bad rows skipped\)"):
        rows(trace("TIMESTAMP,ContextTokens,GeneratedTokens\nx,1,1\n", skip_bad_rows=True))


def test_a_missing_file_and_a_directory(tmp_path):
    with pytest.raises(InputError, match=r"/none: there is no such file$"):
        Trace(str(tmp_path / "none"))
    with pytest.raises(InputError, match=r"is a directory; give a file$"):
        Trace(str(tmp_path))


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no /proc/self/mem to read from")
def test_a_file_that_cannot_be_read():
    with pytest.raises(InputError, match=r"^/proc/self/mem: cannot be read \("):
        Trace("/proc/self/mem")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_a_pipe_is_read_as_it_comes(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(gzip.compress(AZURE.encode()),))
    writer.start()
    assert rows(Trace(str(pipe))) == AZURE_ROWS
    writer.join()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limit": 0}, "limit is 0, not an int of at least 1"),
        ({"time_scale": 0.0}, "time_scale is 0.0, not a number above 0"),
        ({"users": 0}, "users is 0, not an int of at least 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(trace, options, message):
    with pytest.raises(InputError) as refused:
        trace(AZURE, **options)
    assert str(refused.value) == message


PUBLIC = {
    "AzureLLMInferenceTrace_code.csv": (8_819, "azure-csv", 3435.948056),
    "AzureLLMInferenceTrace_conv.csv": (19_366, "azure-csv", 3501.721937),
    "mooncake_conversation_trace.jsonl": (12_031, "mooncake-jsonl", 3536.999),
}


@pytest.mark.parametrize(("name", "facts"), PUBLIC.items(), ids=PUBLIC)
def test_the_public_traces_are_read_whole(name, facts):
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"{path} is not there: docs/how-to/run-a-trace.md says where to get it")
    read = Trace(str(path))
    users = Counter()
    for at_s, request in read:
        users[request.user_id] += 1
        last = at_s
    assert (read.requests, read.format, last) == facts
    assert [user for user, _ in users.most_common(3)] == ["u1", "u2", "u3"]
