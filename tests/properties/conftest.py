"""Profiles of hypothesis: `quick`, always the same, in `make test`; `--hypothesis-profile=campaign` for thousands."""

from hypothesis import HealthCheck, settings

COMMON = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}

settings.register_profile("quick", max_examples=25, derandomize=True, **COMMON)
settings.register_profile("campaign", max_examples=700, **COMMON)
settings.load_profile("quick")
