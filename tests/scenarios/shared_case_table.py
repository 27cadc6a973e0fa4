"""Where our rules make a shared case come out otherwise, and which do not apply. Case id -> why."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

FAIR_POLICIES: Final = ("vtc", "fair-lane")
"""The policies that are fair between users: a `fair=1` case runs under each that is shipped."""

NOT_APPLICABLE: Final[Mapping[str, str]] = {
    "B117": "needs min_tokens, which requests do not have",
    "B118": "needs min_tokens, which requests do not have",
}


NOT_PROMISED: Final[Mapping[tuple[str, str], str]] = {
    ("fair-lane", "B063"): "fair-lane bounds how long a light user waits for its first tokens, not "
    "the service of users of like load: while memory is ample these are served by age",
}
"""(policy, case id) -> why that policy does not promise what the case asks."""


class Ours(NamedTuple):
    """Our own check of a shared case, and why the case's own does not apply."""

    check: str
    why: str


_AT_ONCE = (
    "rule 3: an admission takes the blocks of the context and of the token about to come, "
    "min(p+g+1, p+m-1) tokens, at once; "
)

OURS: Final[Mapping[str, Ours]] = {
    "B015": Ours(
        "npre==0 and done=={'A':4,'B':8} and first['B']==5 and free==4",
        _AT_ONCE + "A and B take 3 of 4 blocks each, so B is not admitted to be preempted",
    ),
    "B031": Ours(
        "[e[:2] for e in ev if e[2]=='preempt']==[(17,'S2'),(37,'S5')]"
        " and all(s=='length' for s in st.values())",
        _AT_ONCE + "16+1 tokens are 2 blocks, so three of the six are admitted, and grow together "
        "in tick 17, where one eviction gives two blocks; the same again in tick 37",
    ),
    "B036": Ours(
        "pre=={'A':0,'B':1,'E':0} and all(s=='length' for s in st.values())",
        _AT_ONCE + "A takes 3, B 2, and E does not fit into the one left; in tick 17 A grows into "
        "that one, and B, which wants one too and is the youngest, is the only one to go",
    ),
    "B037": Ours(
        "npre==0 and first['B']==34==done['A']+1",
        _AT_ONCE + "A and B take 3 of 4 blocks each, so B stays out until A ends",
    ),
    "B038": Ours(
        "npre==0 and first['B']==9==done['A']+1 and 'B' not in log[1]",
        _AT_ONCE + "A and B take 2 of 3 blocks each, so B is not admitted to preempt itself",
    ),
    "B048": Ours(
        "npre==0 and first['B']==21==done['A']+1",
        _AT_ONCE + "A and B take 3 of 5 blocks each, so B is not admitted to be a victim",
    ),
    "B058": Ours(
        "npre==0 and out=={'A':1,'B':20} and first['A']==3 and first['B']==4",
        _AT_ONCE + "A takes all 10 blocks with its first chunk, so a chunk never preempts; and "
        "a plan is made as a whole, so there is nothing to refund",
    ),
    "B122": Ours(
        "npre==0 and out=={'A':12,'B':12} and first['B']==13 and free==3",
        _AT_ONCE + "A and B take 2 of 3 blocks each, so B is not admitted to be preempted",
    ),
}

OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "B088": {"failing_calls": (2,)},
}
"""What a case asks for in its remark only: here, that the model fails in tick 2."""
