"""All the seeded faults, by subject of what notices them."""

from faults import wrong_policies, wrong_rules

FAULTS = (
    *wrong_rules.MEMORY,
    *wrong_rules.LIMITS,
    *wrong_rules.LIFE,
    *wrong_rules.TOKENS,
    *wrong_rules.ORDER,
    *wrong_policies.POLICIES,
    *wrong_rules.NEVER,
)
