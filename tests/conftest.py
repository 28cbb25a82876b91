"""What every suite shares: Hypothesis profiles, and no real cloud account."""

import os
import signal
import time

import pytest
from hypothesis import settings

pytest_plugins = ["tests.support.sparkling"]

# Spark hands timestamps to Python in the machine's zone; ours are UTC.
os.environ["TZ"] = "UTC"
time.tzset()

# A shell that starts us in the background has its children ignore Ctrl-C, and ours would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Generated examples run at the speed of a shared machine, so no deadline; CI looks at more of them.
settings.register_profile("local", deadline=None, max_examples=100)
settings.register_profile("ci", deadline=None, max_examples=300, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")

# No test may reach a real account, whatever the developer is logged in to.
os.environ.pop("AWS_PROFILE", None)
os.environ.update(
    AWS_ACCESS_KEY_ID="test",
    AWS_SECRET_ACCESS_KEY="test",
    AWS_DEFAULT_REGION="eu-west-1",
    AWS_EC2_METADATA_DISABLED="true",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests are CI's; elsewhere they are skipped by name unless they are asked for."""
    if os.environ.get("CI") or os.environ.get("SLOW_TESTS"):
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow; run it with SLOW_TESTS=1"))
