"""Says which stall points and crash seeds this run tries."""

from tests.crash.stalls.stalls import EVERY, FEW_SEEDS, first_point, is_whole_run


def pytest_report_header() -> str:
    if is_whole_run():
        return "stall points and crash seeds: all"
    return f"stall points, and seeds beyond {FEW_SEEDS}: every {EVERY}th, from {first_point()} (STALLS=all runs all)"
