"""The outcome of a replay as text."""

from batchproof.sched.replay import Difference, Outcome
from batchproof.sched.run_recording import Record, encode


def replay_text(outcome: Outcome) -> str:
    """Return one line if the run was the same, or the first line that differs, both ways."""
    if outcome.difference is not None:
        return _difference(outcome.difference)
    counted = f"{outcome.lines:,} lines, {outcome.ticks:,} ticks"
    if outcome.interrupted:
        return f"interrupted: the same so far: {counted}"
    return f"the same run: {counted}"


def _difference(difference: Difference) -> str:
    recorded, replayed = difference.recorded, difference.replayed
    if not difference.fields:
        what = "another event"
        lines = [_line(recorded), "nothing" if replayed is None else _line(replayed)]
    else:
        what = ", ".join(difference.fields)
        lines = [
            " ".join(f"{name}={getattr(record, name)!r}" for name in difference.fields)
            for record in (recorded, replayed)
        ]
    return (
        f"line {difference.line} differs in {what}:\n  recorded {lines[0]}\n  replayed {lines[1]}"
    )


def _line(record: Record) -> str:
    return encode(record).decode()
