"""Faults of the code that ships, in what a request may ask for: room, times, a priority."""

from faults.shipped_fault import ShippedFault

EXPIRY = "sched/expiry.py"
SCHEDULER = "sched/scheduler.py"
WAITING = "sched/waiting.py"

ASKED_FOR = (
    ShippedFault(
        "tokens-wait-on",
        "the tokens of a request that waits no more are counted on",
        WAITING,
        "        self.tokens -= sequence.context_len\n",
        "",
    ),
    ShippedFault(
        "expires-a-second-late",
        "a request expires a second after its time",
        EXPIRY,
        "while heap and heap[0][0] <= now:",
        "while heap and heap[0][0] <= now - 1:",
    ),
    ShippedFault(
        "patience-without-end",
        "an admitted request expires when it could have waited no longer",
        EXPIRY,
        "    if patience is None or sequence.was_admitted:\n",
        "    if patience is None:\n",
    ),
    ShippedFault(
        "expired-in-silence",
        "a request that has expired is not returned",
        SCHEDULER,
        "            self._unreported.append(sequence)\n",
        "",
    ),
    ShippedFault(
        "passes-equals",
        "a request passes those of its own priority",
        WAITING,
        "other.priority < urgency and",
        "other.priority <= urgency and",
        bound="priority",
    ),
    ShippedFault(
        "never-ages",
        "who is passed can be passed without end",
        WAITING,
        "            other.passed += 1\n",
        "",
        bound="priority",
    ),
)
