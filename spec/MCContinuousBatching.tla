------------------------ MODULE MCContinuousBatching ------------------------
\* The requests of each bound: a .cfg cannot write them down itself.
EXTENDS ContinuousBatching

PairRequests ==
    << [user |-> 0, prompt |-> 3, max_tokens |-> 4],
       [user |-> 0, prompt |-> 3, max_tokens |-> 4],
       [user |-> 0, prompt |-> 3, max_tokens |-> 9] >>

GrowthRequests ==
    << [user |-> 0, prompt |-> 3, max_tokens |-> 4],
       [user |-> 0, prompt |-> 3, max_tokens |-> 4],
       [user |-> 1, prompt |-> 3, max_tokens |-> 4] >>

NoCancelRequests ==
    << [user |-> 0, prompt |-> 3, max_tokens |-> 4],
       [user |-> 0, prompt |-> 3, max_tokens |-> 4],
       [user |-> 1, prompt |-> 1, max_tokens |-> 3] >>

UsersRequests ==
    << [user |-> 0, prompt |-> 1, max_tokens |-> 3],
       [user |-> 0, prompt |-> 1, max_tokens |-> 3],
       [user |-> 1, prompt |-> 1, max_tokens |-> 3],
       [user |-> 1, prompt |-> 1, max_tokens |-> 3] >>

BudgetRequests ==
    << [user |-> 0, prompt |-> 1, max_tokens |-> 3],
       [user |-> 0, prompt |-> 1, max_tokens |-> 3],
       [user |-> 1, prompt |-> 3, max_tokens |-> 3] >>

ReserveRequests ==
    << [user |-> 0, prompt |-> 3, max_tokens |-> 3],
       [user |-> 0, prompt |-> 3, max_tokens |-> 3],
       [user |-> 1, prompt |-> 2, max_tokens |-> 2],
       [user |-> 1, prompt |-> 2, max_tokens |-> 2] >>

=============================================================================
