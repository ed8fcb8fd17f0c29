"""Settings for every test."""

from hypothesis import HealthCheck, settings

# The same examples each time: a merge may not depend on luck. To hunt for new ones:
# pytest --hypothesis-profile=explore
settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("repeatable")
