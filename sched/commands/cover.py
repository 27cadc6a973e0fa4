"""`batchproof cover`: lead the shipped scheduler along every transition, without copying it."""

import json as json_text
from typing import Annotated, cast

from cyclopts import Parameter

from batchproof.sched.commands.names import known
from batchproof.sched.policy.registry import DEFAULT_POLICY
from batchproof.sched.shipped import Shipped
from batchproof.sched.shipped_cover import CoverError, covered
from batchproof.sched.shipped_family import MODEL_FAMILY


def cover(
    *,
    bound: Annotated[str, Parameter(help="Size, as of `check scheduler`.")] = "pair",
    policy: Annotated[str, Parameter(help="Policy to run under.")] = DEFAULT_POLICY,
    json: Annotated[bool, Parameter(help="Print the outcome as JSON.", negative=())] = False,
) -> int:
    """Take every transition at a bound in a few long walks from the start.

    Returns:
        The exit code: 0 all were taken, 1 a step led elsewhere than in the search.

    Raises:
        InputError: an unknown bound or policy.

    """
    size = MODEL_FAMILY.bounds[known("bound", bound, list(MODEL_FAMILY.bounds))]
    chosen = known("policy", policy, MODEL_FAMILY.policies)
    try:
        walks, edges = covered(cast(Shipped, MODEL_FAMILY.build(size, chosen)))
    except CoverError as error:
        print(f"scheduler {bound}, policy {chosen}: {error}")
        return 1
    outcome = {
        "bound": bound,
        "policy": chosen,
        "states": len(walks.states),
        "edges": walks.edges,
        "edges_covered": edges,
        "walks": len(walks.walks),
        "steps": walks.steps,
    }
    if json:
        print(json_text.dumps(outcome, indent=2))
    else:
        print(
            f"scheduler {bound}, policy {chosen}: {edges:,} of {walks.edges:,} edges between "
            f"{len(walks.states):,} states covered, {walks.steps:,} steps in "
            f"{len(walks.walks):,} walks"
        )
    return 0 if edges == walks.edges else 1
