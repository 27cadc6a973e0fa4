"""`mini-batch` in integers, worked out from the plain model.

The view is a pattern: what the running requests have done, in order, and how
many wait; it does not say who they are. The rest says that: a number for every
place in line (running first, then waiting), and for every request whether it
is new, live, or done after so many tokens.
"""

from dataclasses import dataclass, field

from batchproof.spec.mini_batch import (
    DONE,
    NEW,
    WAITING,
    MiniBatch,
    Request,
    Size,
    State,
)
from batchproof.spec.packed import Field, Guard, Move

Pattern = tuple[tuple[Request, ...], int]
"""The running requests in order, and the number of waiting ones."""

_WAITING_REQUEST = Request(WAITING, 0, 0)


@dataclass
class PackedMiniBatch:
    """The packed model; patterns are numbered in the order in which they are met."""

    size: Size
    _patterns: list[Pattern] = field(default_factory=lambda: [((), 0)])
    _numbers: dict[Pattern, int] = field(default_factory=lambda: {((), 0): 0})

    def __post_init__(self) -> None:
        self.plain = MiniBatch(self.size, "none")
        self._id_bits = max((self.size.requests - 1).bit_length(), 1)
        self._live = self.size.max_tokens + 1
        self._fate_bits = self._live.bit_length()
        """Of a request's fate: 0 new, 1 to max_tokens done after so many, then live."""
        self._fates = self.size.requests * self._fate_bits
        self.rest_bits = self._fates + self.size.requests * self._id_bits

    def initial(self) -> list[int]:
        """Nothing is submitted yet: the empty pattern, everyone new."""
        return [0]

    def moves(self, view: int) -> list[Move]:
        """Return the moves of a pattern: the plain model's, whoever stands where in line."""
        running, waiting = self._patterns[view]
        moves = [self._submission(running, waiting, i) for i in range(self.size.requests)]
        in_line = len(running) + waiting
        if in_line == self.size.requests:
            moves.clear()
        state = State(
            (*running, *(_WAITING_REQUEST,) * waiting),
            tuple(range(len(running), in_line)),
            tuple(range(len(running))),
        )
        moves += [self._tick(after) for _, after in self.plain.successors(state)]
        return list(dict.fromkeys(moves))

    def unpack(self, packed: int) -> State:
        """Return the plain state."""
        running, waiting = self._patterns[packed >> self.rest_bits]
        line = [self._place(packed, place) for place in range(len(running) + waiting)]
        requests: list[Request] = []
        for i in range(self.size.requests):
            fate = (packed >> (i * self._fate_bits)) & ((1 << self._fate_bits) - 1)
            requests.append(Request(DONE, self.size.prompt, fate) if fate else Request(NEW, 0, 0))
        for i, request in zip(line, (*running, *(_WAITING_REQUEST,) * waiting), strict=True):
            requests[i] = request
        return State(tuple(requests), tuple(line[len(running) :]), tuple(line[: len(running)]))

    def _place(self, packed: int, place: int) -> int:
        return (packed >> self._place_shift(place)) & ((1 << self._id_bits) - 1)

    def _place_shift(self, place: int) -> int:
        return self._fates + place * self._id_bits

    def _view(self, running: tuple[Request, ...], waiting: int) -> int:
        """Return the high bits of a pattern, numbering it if it is new."""
        number = self._numbers.setdefault((running, waiting), len(self._patterns))
        if number == len(self._patterns):
            self._patterns.append((running, waiting))
        return number << self.rest_bits

    def _submission(self, running: tuple[Request, ...], waiting: int, i: int) -> Move:
        fate_shift = i * self._fate_bits
        last_place = self._place_shift(len(running) + waiting)
        joined = (self._live << fate_shift) + (i << last_place)
        return Move(
            base=self._view(running, waiting + 1) + joined,
            fields=(Field(0, (1 << self.rest_bits) - 1),),
            guard=Guard(fate_shift, (1 << self._fate_bits) - 1, 0),
        )

    def _tick(self, after: State) -> Move:
        """Return the move to `after`, whose requests are numbered by their places before."""
        line = after.running + after.queue
        fields = [Field(0, (1 << self._fates) - 1)]
        for first, last, to in _stretches(line):
            mask = (1 << ((last - first + 1) * self._id_bits)) - 1
            fields.append(Field(self._place_shift(first), mask, self._place_shift(to)))
        for place, request in enumerate(after.requests):
            if request.status == DONE:
                change = request.generated - self._live
                table = tuple(
                    change * (1 << (i * self._fate_bits)) for i in range(1 << self._id_bits)
                )
                mask = (1 << self._id_bits) - 1
                fields.append(Field(self._place_shift(place), mask, table=table))
        if line == tuple(range(len(after.requests))):
            fields = [Field(0, (1 << self.rest_bits) - 1)]
        running = tuple(after.requests[i] for i in after.running)
        return Move(self._view(running, len(after.queue)), tuple(fields))


def _stretches(line: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Return the unbroken stretches of old places in `line`: first, last, new first."""
    stretches: list[tuple[int, int, int]] = []
    for to, place in enumerate(line):
        if stretches and stretches[-1][1] == place - 1:
            first, _, start = stretches[-1]
            stretches[-1] = (first, place, start)
        else:
            stretches.append((place, place, to))
    return stretches
