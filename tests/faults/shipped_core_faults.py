"""Faults of the code that ships, in the tick coordinator, the roster and the pool."""

from faults.shipped_fault import ShippedFault

SCHEDULER = "sched/scheduler.py"
ROSTER = "sched/roster.py"
BLOCKS = "sched/blocks.py"
BATCH = "sched/batch.py"

CORE = (
    ShippedFault(
        "id-used-too-early",
        "the id of a live request is accepted again",
        "sched/acceptance.py",
        "if request.request_id in roster.live:",
        "if request.request_id in ():",
    ),
    ShippedFault(
        "places-shared",
        "two requests may have the same place in the order",
        SCHEDULER,
        "        self._submissions += 1\n",
        "        self._submissions += len(self._roster.live) % 2\n",
    ),
    ShippedFault(
        "abandon-forgets-grown",
        "an abandoned batch keeps the blocks that decodes grew by",
        BATCH,
        "            pool.give([sequence.blocks.pop()])\n",
        "            sequence.blocks.pop()\n",
    ),
    ShippedFault(
        "abandon-forgets-admitted",
        "an abandoned batch keeps the blocks of those it admitted",
        BATCH,
        "            pool.give(sequence.blocks)\n"
        "            sequence.blocks = []\n"
        "        for sequence in reversed",
        "            sequence.blocks = []\n        for sequence in reversed",
    ),
    ShippedFault(
        "abandon-forgets-preempted",
        "those that an abandoned batch preempted do not get their blocks back",
        BATCH,
        "sequence.blocks = pool.take(len(blocks))",
        "sequence.blocks = []",
        bound="growth",
    ),
    ShippedFault(
        "abandon-out-of-order",
        "an abandoned batch gives blocks back first taken first",
        BATCH,
        "for sequence in reversed(self.admitted):",
        "for sequence in self.admitted:",
    ),
    ShippedFault(
        "failed-tick-not-undone",
        "a tick whose executor failed is forgotten, not undone",
        SCHEDULER,
        "            self.abandon(batch)\n            raise",
        "            self._batch = None\n            raise",
    ),
    ShippedFault(
        "evicted-not-freed",
        "the blocks of a preempted request are not freed",
        BATCH,
        "            pool.give(sequence.blocks)\n"
        "            sequence.blocks = []\n"
        "        for sequence in self.grown",
        "            sequence.blocks = []\n        for sequence in self.grown",
    ),
    ShippedFault(
        "evicted-still-held",
        "a preempted request keeps its block table",
        BATCH,
        "            sequence.blocks = []\n        for sequence in self.grown",
        "        for sequence in self.grown",
    ),
    ShippedFault(
        "first-eos-ignored",
        "EOS as the first token is ignored",
        SCHEDULER,
        "if tokens[index] == self.limits.eos_token or not sequence.remaining:",
        "if not sequence.remaining:",
    ),
    ShippedFault(
        "eos-after-recomputation-ignored",
        "EOS on the first token after a recomputation is ignored",
        SCHEDULER,
        "if tokens[index] == self.limits.eos_token or not sequence.remaining:",
        "if (\n"
        "                tokens[index] == self.limits.eos_token and not sequence.preemptions\n"
        "            ) or not sequence.remaining:",
    ),
    ShippedFault(
        "eos-of-a-decode-ignored",
        "EOS that a decode yields is ignored",
        SCHEDULER,
        "if token == eos or not sequence.steps_left:",
        "if not sequence.steps_left:",
    ),
    ShippedFault(
        "length-ignored",
        "a decode goes on after its last token",
        SCHEDULER,
        "if sequence.generated[-1] == eos or not sequence.remaining:",
        "if sequence.generated[-1] == eos:",
    ),
    ShippedFault(
        "first-token-never-last",
        "a request of one token goes on to decode",
        SCHEDULER,
        "if tokens[index] == self.limits.eos_token or not sequence.remaining:",
        "if tokens[index] == self.limits.eos_token:",
    ),
    ShippedFault(
        "token-of-a-chunk-kept",
        "the token after an unfinished prefill is kept",
        SCHEDULER,
        "            if sequence.prefill_left:\n                continue\n",
        "",
    ),
    ShippedFault(
        "reason-mixed-up",
        "an end by EOS at the last token counts as one by length",
        SCHEDULER,
        "eos = sequence.generated[-1] == self.limits.eos_token",
        "eos = bool(sequence.remaining)",
    ),
    ShippedFault(
        "reported-twice",
        "of several that end in a tick one is reported twice",
        SCHEDULER,
        "return [sequence.request for sequence in ended]",
        "return [sequence.request for sequence in ended + ended[1:2]]",
    ),
    ShippedFault(
        "not-reported",
        "of several that end in a tick one is not reported",
        SCHEDULER,
        "return [sequence.request for sequence in ended]",
        "return [sequence.request for sequence in ended[1:] or ended]",
    ),
    ShippedFault(
        "no-turns",
        "decodes that were left out do not come first next time",
        SCHEDULER,
        "        if count < len(self._roster.decoding):\n"
        "            self._roster.rotate(decodes)\n",
        "",
        policy="prefill-first",
        bound="turns",
    ),
    ShippedFault(
        "boundary-not-counted",
        "a decode does not count towards its next block boundary",
        SCHEDULER,
        "            sequence.steps_left -= 1\n",
        "",
    ),
    ShippedFault(
        "chunk-fed-short",
        "the last token of a long chunk is fed again",
        SCHEDULER,
        "sequence.prefilled += sequence.scheduled",
        "sequence.prefilled += sequence.scheduled - (sequence.scheduled > 1)",
    ),
    ShippedFault(
        "preemptions-uncounted",
        "preemptions are not counted in all",
        SCHEDULER,
        "        self._metrics.preemptions += len(batch.preempted)\n",
        "",
    ),
    ShippedFault(
        "cancelled-by-eos",
        "a cancelled request keeps no finish reason",
        SCHEDULER,
        "        sequence.request.finish_reason = reason\n",
        '        sequence.request.finish_reason = reason if reason != "cancelled" else None\n',
    ),
    ShippedFault(
        "end-leaks",
        "the blocks of a request that ends or is cancelled are not freed",
        ROSTER,
        "        self.pool.give(sequence.blocks)\n",
        "",
    ),
    ShippedFault(
        "end-stays-live",
        "a request that is done stays among the live",
        ROSTER,
        "        del self.live[sequence.request_id]\n",
        "",
    ),
    ShippedFault(
        "preempted-keeps-progress",
        "a preempted request goes on where its prefill was",
        ROSTER,
        "        sequence.prefilled = 0\n",
        "",
        bound="growth",
    ),
    ShippedFault(
        "tokens-not-recomputed",
        "after a preemption only the prompt is fed again",
        ROSTER,
        "sequence.context_len = sequence.prompt_len + len(sequence.generated)",
        "sequence.context_len = sequence.prompt_len",
    ),
    ShippedFault(
        "old-need-kept",
        "a preempted request is admitted with the blocks it needed at first",
        ROSTER,
        "        sequence.admission_blocks = self.view.admission_blocks(sequence)\n"
        "        sequence.waiting_since",
        "        sequence.waiting_since",
    ),
    ShippedFault(
        "place-lost",
        "a preempted request goes to the end of the line",
        ROSTER,
        "self.waiting.put_back(sequence)\n\n    def _aim",
        "self.waiting.append(sequence)\n\n    def _aim",
    ),
    ShippedFault(
        "stale-plan",
        "a request that was preempted is still among those that grow",
        ROSTER,
        "            self.growing.pop(sequence, None)\n",
        "",
        bound="growth",
    ),
    ShippedFault(
        "boundary-off-by-one",
        "a block boundary is seen one token late",
        ROSTER,
        "covered = len(sequence.blocks) * self.limits.block_size - sequence.prompt_len",
        "covered = len(sequence.blocks) * self.limits.block_size - sequence.prompt_len + 1",
    ),
    ShippedFault(
        "slot-for-the-last-token",
        "a request grows for its last token, which needs no slot",
        ROSTER,
        "if covered >= sequence.max_tokens - 1 else",
        "if covered >= sequence.max_tokens else",
    ),
    ShippedFault(
        "grows-once",
        "a decode that has grown does not look for its next boundary",
        ROSTER,
        "        del self.growing[sequence]\n        self._aim(sequence)\n",
        "        del self.growing[sequence]\n",
        bound="users",
    ),
    ShippedFault(
        "take-in-reverse",
        "blocks are taken in an order that giving back does not undo",
        BLOCKS,
        "        taken.reverse()\n",
        "",
    ),
    ShippedFault(
        "give-in-reverse",
        "blocks are given back in another order than they were taken",
        BLOCKS,
        "self._free.extend(reversed(blocks))",
        "self._free.extend(blocks)",
    ),
    ShippedFault(
        "give-loses-one",
        "of several blocks given back one is lost",
        BLOCKS,
        "self._free.extend(reversed(blocks))",
        "self._free.extend(reversed(blocks[:1] if len(blocks) == 2 else blocks))",
    ),
    ShippedFault(
        "last-block-unused",
        "the last free block is never offered",
        BLOCKS,
        "return len(self._free)\n\n    @property",
        "return max(len(self._free) - 1, 0)\n\n    @property",
    ),
)
