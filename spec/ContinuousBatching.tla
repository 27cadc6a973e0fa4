------------------------- MODULE ContinuousBatching -------------------------
(***************************************************************************)
(* Continuous batching under a hard cap of KV memory: what may happen.     *)
(*                                                                         *)
(* The same specification as state.py and actions.py, for readers of TLA+. *)
(* It is policy-free: a tick may do any work that the rules allow, and the *)
(* environment chooses whose output is EOS. A rule number refers to        *)
(* docs/explanation/rules.md.                                              *)
(*                                                                         *)
(* Distinct states that TLC finds, and `batchproof check --full --policy   *)
(* any` too, with the .cfg of each bound:                                  *)
(*                                                                         *)
(*     pair            569                                                 *)
(*     growth       16,342                                                 *)
(*     no-cancel     4,886                                                 *)
(*     users        50,349                                                 *)
(*     budget        4,642                                                 *)
(*     reserve       2,545                                                 *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    MaxKvBlocks,    \* blocks in the pool
    BlockSize,      \* tokens that a block holds
    ChunkSize,      \* the most tokens that one request prefills in a tick
    TokenBudget,    \* the most tokens that a batch feeds
    MaxBatchSize,   \* the most sequences in a batch
    Admission,      \* "max_utilization" or "guaranteed_no_evict"
    Cancels,        \* whether users cancel
    Requests        \* what may be submitted: a sequence of [user, prompt, max_tokens]

VARIABLES
    live,           \* the live requests, in the order of first submission
    free            \* free blocks

vars == << live, free >>

-----------------------------------------------------------------------------

Min(a, b) == IF a < b THEN a ELSE b

Max(a, b) == IF a > b THEN a ELSE b

\* The sum of f[k] over all k in S.
RECURSIVE Sum(_, _)
Sum(f, S) ==
    IF S = {} THEN 0
    ELSE LET k == CHOOSE k \in S : TRUE
         IN f[k] + Sum(f, S \ {k})

Ids == 1 .. Len(Requests)

\* Places in the order of submission; 1 is the oldest.
Places == 1 .. Len(live)

LiveIds == {live[k].request : k \in Places}

Waiting == {k \in Places : live[k].phase = "waiting"}

Residents == Places \ Waiting

\* The requests of a sequence that are at none of the places in S.
Without(line, S) ==
    LET gone == {line[k].request : k \in S}
        Stays(r) == r.request \notin gone
    IN SelectSeq(line, Stays)

-----------------------------------------------------------------------------
(* Rule 3: how many blocks *)

BlocksFor(tokens) == (tokens + BlockSize - 1) \div BlockSize

BlocksAtPeak(i) == BlocksFor(Requests[i].prompt + Requests[i].max_tokens - 1)

BlocksToYield(i, generated) ==
    BlocksFor(Min(Requests[i].prompt + generated + 1,
                  Requests[i].prompt + Requests[i].max_tokens - 1))

BlocksToAdmit(i, generated) ==
    IF Admission = "guaranteed_no_evict" THEN BlocksAtPeak(i)
    ELSE BlocksToYield(i, generated)

Growth(r) == Max(BlocksToYield(r.request, r.generated) - r.blocks, 0)

(* Rule 4: what could finish alone in an empty pool *)

IsFeasible(i) ==
    /\ Requests[i].prompt >= 1
    /\ Requests[i].max_tokens >= 1
    /\ BlocksAtPeak(i) <= MaxKvBlocks

(* Rules 2 and 6: how many tokens, and whether one comes of it *)

Context(r) == Requests[r.request].prompt + r.generated

Feedable(r) ==
    IF r.phase = "decoding" THEN 1
    ELSE Min(ChunkSize, Context(r) - r.prefilled)

Completes(r, tokens) == r.phase = "decoding" \/ r.prefilled + tokens >= Context(r)

-----------------------------------------------------------------------------

Init ==
    /\ live = << >>
    /\ free = MaxKvBlocks

Acceptable(i) == i \notin LiveIds /\ IsFeasible(i)

\* Rules 4 and 5: a feasible request whose id is not live joins the end of the line.
Submit(i) ==
    /\ Acceptable(i)
    /\ live' = Append(live, [request |-> i, phase |-> "waiting",
                             prefilled |-> 0, generated |-> 0, blocks |-> 0])
    /\ free' = free

\* Rule 4: any other is refused, and nothing changes.
Refuse(i) ==
    /\ ~ Acceptable(i)
    /\ live' = live
    /\ free' = free

\* Rule 9: a live request ends at once; its blocks are free.
Cancel(k) ==
    /\ Cancels
    /\ live' = Without(live, {k})
    /\ free' = free + live[k].blocks

-----------------------------------------------------------------------------
(* What a tick does to one request *)

\* Rules 5 and 8: it gives up its blocks, and keeps its place and its tokens.
Preempted(r) == [r EXCEPT !.phase = "waiting", !.prefilled = 0, !.blocks = 0]

\* Rule 3: it takes its blocks at once.
Admitted(r) ==
    [r EXCEPT !.phase = "prefilling", !.blocks = BlocksToAdmit(r.request, r.generated)]

\* Rule 2: a decode yields a token, and so does the last token of a prefill.
Fed(r, tokens) ==
    IF r.phase = "decoding"
    THEN [r EXCEPT !.generated = r.generated + 1, !.blocks = r.blocks + Growth(r)]
    ELSE IF Completes(r, tokens)
    THEN [r EXCEPT !.phase = "decoding", !.prefilled = 0, !.generated = r.generated + 1]
    ELSE [r EXCEPT !.prefilled = r.prefilled + tokens]

\* The request at place k after a tick that preempts, admits and feeds these.
After(k, preempt, admit, feed) ==
    IF k \in preempt THEN Preempted(live[k])
    ELSE LET r == IF k \in admit THEN Admitted(live[k]) ELSE live[k]
             tokens == IF k \in DOMAIN feed THEN feed[k] ELSE 0
         IN IF tokens = 0 THEN r ELSE Fed(r, tokens)

\* The blocks that the request at place k takes in such a tick.
Taken(k, admit, feed) ==
    IF k \in admit THEN BlocksToAdmit(live[k].request, live[k].generated)
    ELSE IF k \in DOMAIN feed /\ live[k].phase = "decoding" /\ feed[k] > 0
    THEN Growth(live[k])
    ELSE 0

-----------------------------------------------------------------------------

\* What a tick may do: whom it preempts and admits, and how many tokens it feeds to whom.
Legal(preempt, admit, feed) ==
    LET fed == {k \in DOMAIN feed : feed[k] > 0}
        freed == Sum([k \in Places |-> live[k].blocks], preempt)
        taken == Sum([k \in Places |-> Taken(k, admit, feed)], Places)
        passed == (Waiting \cup preempt) \ admit
    IN /\ fed # {}                                              \* rule 7
       /\ Cardinality(fed) <= MaxBatchSize                      \* rule 6
       /\ Sum(feed, fed) <= TokenBudget                         \* rule 6
       /\ \A k \in fed : feed[k] <= Feedable(live[k])           \* rule 6
       /\ taken <= free + freed                                 \* rule 3
       /\ Admission = "guaranteed_no_evict" => preempt = {}     \* rule 3
       /\ \A younger \in admit : \A older \in passed :          \* rule 5
             older < younger =>
                Requests[live[older].request].user # Requests[live[younger].request].user

\* Rule 2: those of a tick that yield a token.
Yielding(feed) == {k \in DOMAIN feed : feed[k] > 0 /\ Completes(live[k], feed[k])}

\* Rule 2: those of them that end with it, by EOS or by length.
Ending(feed, eos) ==
    {k \in Yielding(feed) :
        k \in eos \/ live[k].generated + 1 = Requests[live[k].request].max_tokens}

\* Rules 1 to 7: one iteration of the model. Any legal work; any of the tokens may be EOS.
\* Who ends leaves in this very tick, and its blocks are free in it.
Tick ==
    \E preempt \in SUBSET Residents :
    \E admit \in SUBSET Waiting :
    \E feed \in [(Residents \ preempt) \cup admit -> 0 .. ChunkSize] :
        /\ Legal(preempt, admit, feed)
        /\ \E eos \in SUBSET Yielding(feed) :
              LET after == [k \in Places |-> After(k, preempt, admit, feed)]
                  ending == Ending(feed, eos)
                  before == [k \in Places |-> live[k].blocks]
                  held == [k \in Places |-> after[k].blocks]
              IN /\ live' = Without(after, ending)
                 /\ free' = free + Sum(before, Places) - Sum(held, Places \ ending)

Next ==
    \/ \E i \in Ids : Submit(i)
    \/ \E i \in Ids : Refuse(i)
    \/ \E k \in Places : Cancel(k)
    \/ Tick

\* Ticks go on happening; nobody is obliged to submit or to cancel.
Spec == Init /\ [][Next]_vars /\ WF_vars(Tick)

-----------------------------------------------------------------------------
(* What must hold of every state; the names are those of the catalog *)

Held == Sum([k \in Places |-> live[k].blocks], Places)

KvWithinCap == Held <= MaxKvBlocks

BlocksConserved == free + Held = MaxKvBlocks

OnlyResidentsHold == \A k \in Places : (live[k].blocks > 0) <=> (k \in Residents)

BlocksCoverContext ==
    \A k \in Residents :
        LET r == live[k]
            most == Requests[r.request].prompt + Requests[r.request].max_tokens - 1
            coming == IF r.phase = "decoding" THEN 0 ELSE 1
            tokens == IF Admission = "guaranteed_no_evict" THEN most
                      ELSE Min(most, Context(r) + coming)
        IN (r.blocks - 1) * BlockSize < tokens /\ tokens <= r.blocks * BlockSize

IdsUnique == Cardinality(LiveIds) = Len(live)

FeasibleOrRefused == \A i \in LiveIds : IsFeasible(i)

PhaseFitsTokens ==
    \A k \in Places :
        LET r == live[k]
        IN /\ r.generated < Requests[r.request].max_tokens
           /\ r.phase = "decoding" => r.generated > 0
           /\ r.phase = "prefilling" => r.prefilled < Context(r)

TickPossible == live # << >> => ENABLED Tick

=============================================================================
