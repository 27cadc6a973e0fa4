"""Ring two: the scheduler that ships, at random and at full scale; what occurred is shown."""

from hypothesis import settings
from stateful.full_scale import FAILURES, REACHED, FullScale

RUNS = settings(max_examples=40, stateful_step_count=30)
if settings.get_current_profile_name() == "deep":
    RUNS = settings(max_examples=1_000, stateful_step_count=60)

BAD = (
    *("infeasible", "empty", "no tokens", "duplicate", "no user"),
    *("a deadline that is over", "no patience"),
)
MUST_OCCUR = (
    "preemption",
    "growth",
    "full pool",
    "chunk of a longer prefill",
    "end by EOS",
    "end by length",
    "EOS on the first token after a recomputation",
    "cancelled while waiting",
    "cancelled while prefilling",
    "cancelled while decoding",
    "an id used again",
    "refused: queue full",
    "passed by a more urgent one",
    "expired after none",
    "expired after tokens",
    "expired though the tick was given up",
    "restored",
    "restored, memory lost",
    "resident recomputed after a restart",
    *(f"refused: {what}" for what in BAD),
    *(f"failed tick: {failure}" for failure in FAILURES),
)


def test_everything_holds_and_everything_occurs(capsys) -> None:
    """One test, so that the summary is of exactly these runs; `pytest -s` shows it."""
    REACHED.clear()
    case = FullScale.TestCase()
    case.settings = RUNS
    case.runTest()

    with capsys.disabled():
        summary = ", ".join(f"{what} {count:,}" for what, count in sorted(REACHED.items()))
        print(f"\nreached: {summary}")
    assert [what for what in MUST_OCCUR if not REACHED[what]] == []
