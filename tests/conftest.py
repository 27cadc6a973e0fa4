"""Profiles of the property tests: `ci`, the default, is the same on every run; `deep` looks on;
`mutants` finds what `ci` finds, and does not make it smaller.

`HYPOTHESIS_PROFILE=deep pytest tests` draws new examples on each run, and more of them.
"""

import os

from hypothesis import Phase, settings

settings.register_profile(
    "ci", derandomize=True, deadline=None, max_examples=60, database=None, print_blob=True
)
settings.register_profile(
    "mutants", settings.get_profile("ci"), phases=(Phase.explicit, Phase.generate)
)
settings.register_profile("deep", deadline=None, max_examples=2_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
