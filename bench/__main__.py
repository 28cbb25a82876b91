"""`make bench`: every row of the bar that exists so far, each with its ratio, written to bench/results/latest.json."""

import argparse
import json
import os
import platform as machine
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from bench.groups import bridge, cold, cycles, emulation, ingest, large, limits, many, plan
from bench.rows import Row

RESULTS = Path(__file__).parent / "results" / "latest.json"


def main() -> int:
    """Run every row; exit 1 if one misses its bar."""
    options = argparse.ArgumentParser(prog="make bench", description=main.__doc__)
    options.add_argument("--events", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=3, help="measured rounds")
    names = ["cycles", "large", "limits", "many", "cold", "plan", "ingest", "bridge", "emulation"]
    options.add_argument("--only", choices=names, help="one group, whose rows are replaced")
    options.add_argument("--keep", action="store_true", help="do not write the results file")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="leanops-bench-") as folder:
        groups: dict[str, Callable[[], list[Row]]] = {
            "cycles": lambda: cycles.measure(Path(folder), chosen.events, chosen.rounds),
            "large": lambda: large.measure(Path(folder), chosen.events),
            "limits": lambda: limits.measure(Path(folder), chosen.events),
            "many": lambda: many.measure(Path(folder), chosen.rounds),
            "cold": lambda: cold.measure(Path(folder), chosen.rounds),
            "plan": lambda: plan.measure(Path(folder), chosen.events, chosen.rounds),
            "ingest": lambda: ingest.measure(Path(folder), chosen.events),
            "bridge": lambda: bridge.measure(chosen.rounds),
            "emulation": lambda: emulation.measure(Path(folder), chosen.events),
        }
        found = {name: run() for name, run in groups.items() if chosen.only in (None, name)}
    rows = [one for group in found.values() for one in group]
    _print(rows)
    if not chosen.keep:
        _write(found)
    return 0 if all(one["passed"] for one in rows) else 1


def _write(found: dict[str, list[Row]]) -> None:
    """Keep the rows of groups that were not run."""
    before = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    marked = [{"group": name, **one} for name, group in found.items() for one in group]
    rows = [*(one for one in before if one["group"] not in found), *marked]
    report = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "machine": _machine(), "rows": rows}
    RESULTS.write_text(json.dumps(report, indent=1) + "\n")


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = f"{machine.system()} {machine.machine()}, Python {machine.python_version()}"
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {system}"


def _print(rows: list[Row]) -> None:
    print(f"\n{'work':58} {'ours':>9} {'theirs':>9} {'ratio':>7} {'bar':>6}")
    for one in rows:
        figures = f"{one['ours_s']:9,.2f} {one['theirs_s']:9,.2f} {one['ratio']:7.3f} {one['bar']:6.3f}"
        print(f"{one['work']:58} {figures}  {'pass' if one['passed'] else 'FAIL'}")


if __name__ == "__main__":
    sys.exit(main())
