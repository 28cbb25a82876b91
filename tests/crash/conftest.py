"""Says which stall points this run tries."""

from tests.crash.stalls.stalls import EVERY, first_point, is_whole_run


def pytest_report_header() -> str:
    if is_whole_run():
        return "stall points: all"
    return f"stall points: every {EVERY}rd, from {first_point()} (STALLS=all runs all)"
