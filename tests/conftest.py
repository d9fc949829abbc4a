"""What all tests share: how hypothesis searches."""

import os

from hypothesis import HealthCheck, settings

# No deadline: time is measured in benchmarks, never in tests. In CI the same examples every time, and no database of failures.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "default")
