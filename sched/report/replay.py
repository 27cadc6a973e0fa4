"""The outcome of a replay as text."""

from batchproof.sched.replay import Difference, Outcome
from batchproof.sched.run_recording import Record, encode


def replay_text(outcome: Outcome) -> str:
    """Return one line if all is well, or the first line that is not, both ways if it differs."""
    if outcome.broken is not None:
        line, (tick, name, detail) = outcome.broken
        return f"line {line}, tick {tick}, breaks {name}: {detail}"
    if outcome.difference is not None:
        return _difference(outcome.difference)
    what = "legal, and the same run" if outcome.repeated else "legal; not run again"
    so_far = "interrupted; so far " if outcome.interrupted else ""
    exempt = f"; exempt, by its header, from {', '.join(outcome.exempt)}" if outcome.exempt else ""
    return f"{so_far}{what}: {outcome.lines:,} lines, {outcome.ticks:,} ticks{exempt}"


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
