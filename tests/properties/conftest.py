"""How many examples: 25 of each property in `make test`, always the same; ROBUSTSWEEP_EXAMPLES=720: ten thousand."""

import os

from hypothesis import HealthCheck, settings

ASKED = os.environ.get("ROBUSTSWEEP_EXAMPLES")

settings.register_profile(
    "properties",
    max_examples=int(ASKED or 25),
    derandomize=ASKED is None,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("properties")
