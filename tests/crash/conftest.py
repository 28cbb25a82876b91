"""Says which stall points this run tries."""

import os

from tests.crash.stalls import THIRDS, first_point


def pytest_report_header() -> str:
    if os.environ.get("STALLS") == "all":
        return "stall points: all"
    return f"stall points: every {THIRDS}rd, from {first_point()} (STALLS=all runs all of them)"
