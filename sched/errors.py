"""Errors, by whose fault they are.

Every message says what was asked, what there is, and what to do. After any of
them the scheduler is as it was before the call.
"""


class BatchproofError(Exception):
    """Base of every error raised on purpose."""


class RequestError(BatchproofError, ValueError):
    """The request's fault: it is refused at submission (rule 4)."""


class InvalidRequestError(RequestError):
    """The request makes no sense by itself: empty prompt, bad token ids, max_tokens below 1."""


class InfeasibleRequestError(RequestError):
    """The request could not finish even alone in an empty pool."""


class DuplicateRequestError(RequestError):
    """A live request has the same id, or the same object is live already."""


class QueueFullError(RequestError):
    """The queue has no room for the request now: a bound on what waits is reached (rule 4).

    `limit` is the bound's name, `most` its value, `waiting` what waits already, and
    `would_be` what would wait with the request.
    """

    def __init__(self, message: str, *, limit: str, most: int, waiting: int, would_be: int) -> None:
        super().__init__(message)
        self.limit = limit
        self.most = most
        self.waiting = waiting
        self.would_be = would_be

    @property
    def is_for_ever(self) -> bool:
        """Whether even an empty queue has no room for it, so that trying again is no use."""
        return self.would_be - self.waiting > self.most


class LimitsError(BatchproofError, ValueError):
    """The configuration's fault: limits or options that make no sense (rule 6)."""


class ExecutorError(BatchproofError, RuntimeError):
    """The executor's fault: a wrong number of tokens, or tokens that are not token ids."""


class MisuseError(BatchproofError, RuntimeError):
    """The caller's fault: calls out of order (section "Running the model yourself" of the docs)."""


class IllegalEventError(MisuseError):
    """An event that the lifecycle has no edge for."""


class PolicyError(BatchproofError, RuntimeError):
    """The policy's fault: its plan would break a rule, and is refused as a whole."""

    def __init__(self, policy: str, rule: str, detail: str) -> None:
        super().__init__(f"policy {policy!r} planned what {rule} forbids: {detail}; plan refused")
        self.rule = rule


class SnapshotError(BatchproofError, ValueError):
    """The snapshot's fault: cut short, altered, or of another version."""


class InputError(BatchproofError, ValueError):
    """A file's or an argument's fault, on the command line or in a recording."""
