"""Prints the steps and the verdict of an emulation, and writes its report."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from leanops.entrypoints.cli.options import PROBLEMS
from leanops.entrypoints.cli.output import colored, near, print_json, print_table, say

if TYPE_CHECKING:
    from leanops.emulation.report.numbers import Report
    from leanops.emulation.scenario import Scenario, Step
    from leanops.emulation.verify.verdict import Verdict

LARGEST = 6
SIDE_BY_SIDE = 4
"""Topics that fit next to each other on any terminal."""


def print_steps(steps: "Iterable[Step]") -> None:
    """Print every step as soon as it is done."""
    for step in steps:
        rows = f"{step.rows:,}" if step.rows else ""
        rate = f"{step.rows / step.seconds:,.0f}/s" if step.rows and step.seconds else ""
        say(f"  {step.phase:<7} {step.what:<28} {rows:>10} {step.seconds:>7.1f} s {rate:>10}".rstrip())


def summarise(report: "Report") -> None:
    """Print the numbers of every topic, the largest periods, and what is wrong."""
    from leanops.emulation.report.numbers import COLUMNS

    say("")
    rows = [topic.cells() for topic in report.topics]
    if len(rows) > SIDE_BY_SIDE:
        print_table(COLUMNS, rows, grouped=True)
    else:
        first, *others = zip(COLUMNS, *rows, strict=True)
        print_table(first, others, grouped=True)
    say(f"\nrows per period: {_periods(report)}")
    for name, check in report.failed():
        say(f"✗ {name}: {check.name}: {check.expected:,} expected, {check.found:,} found, {check.wrong:,} wrong", "red")
        for example in check.examples:
            say(f"    {example.message_id} {example.what}")


def _periods(report: "Report") -> str:
    largest = sorted(sorted(report.periods.items(), key=lambda period: -period[1])[:LARGEST])
    counts = [f"{period} {count:,}" for period, count in largest]
    more = len(report.periods) - len(largest)
    return " · ".join([*counts, *([f"{more} more"] if more else [])]) or "none"


def print_balance(report: "Report") -> None:
    """Print the numbers that must be equal, over all topics."""
    rows = [
        [colored("✓", "green") if check.passed else colored("✗", "bold red"), check.name, check.expected, check.found]
        for check in report.checks()
    ]
    say("")
    print_table(("", "must be equal", "expected", "found"), rows, grouped=True)


def judge(
    home: Path,
    scenario: "Scenario",
    verdict: "Verdict",
    seconds: float | None = None,
    *,
    as_json: bool = False,
    show: "Callable[[Report], None]" = summarise,
) -> None:
    """Write the report into the home, print it, and end with exit code 3 if verification failed."""
    from leanops.emulation.report.numbers import report_of
    from leanops.emulation.report.page import page_of
    from leanops.emulation.scenario import REPORT

    report = report_of(scenario, verdict, seconds)
    file = home.expanduser().resolve() / REPORT
    file.write_text(page_of(report), encoding="utf-8")
    if as_json:
        print_json(report.as_json() | {"report": str(file)})
    else:
        show(report)
        outcome = "verified" if report.passed else "FAILED"
        # In a terminal that supports links, the line is one.
        say(f"\n{outcome}, in {report.seconds:,.0f} s; report: {near(file)}", f"link {file.as_uri()}")
    if not report.passed:
        raise typer.Exit(PROBLEMS)
