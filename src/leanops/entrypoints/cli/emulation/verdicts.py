"""The steps and the verdict of an emulation, printed and as a page."""

from collections.abc import Iterable
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


def tell(steps: "Iterable[Step]") -> None:
    """Print every step as soon as it is done."""
    for step in steps:
        rows = f"{step.rows:,}" if step.rows else ""
        rate = f"{step.rows / step.seconds:,.0f}/s" if step.rows and step.seconds else ""
        say(f"  {step.phase:<7} {step.what:<28} {rows:>10} {step.seconds:>7.1f} s {rate:>10}".rstrip())


def written(
    home: Path, scenario: "Scenario", verdict: "Verdict", seconds: float | None = None
) -> "tuple[Report, Path]":
    """The report, and the file in the home that shows it."""
    from leanops.emulation.report.numbers import report_of
    from leanops.emulation.report.page import page_of
    from leanops.emulation.scenario import REPORT

    report = report_of(scenario, verdict, seconds)
    file = home.expanduser().resolve() / REPORT
    file.write_text(page_of(report), encoding="utf-8")
    return report, file


def judge(
    home: Path, scenario: "Scenario", verdict: "Verdict", seconds: float | None = None, *, as_json: bool = False
) -> None:
    """Write the report, print its summary, and end with exit code 3 if it failed."""
    report, file = written(home, scenario, verdict, seconds)
    if as_json:
        print_json(report.as_json() | {"report": str(file)})
    else:
        summarise(report)
        conclude(report, file)
    if not report.passed:
        raise typer.Exit(PROBLEMS)


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
        for wrong in check.examples:
            say(f"    {wrong.message_id} {wrong.what}")


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


def conclude(report: "Report", file: Path) -> None:
    """Print the last line, a link in terminals that know links."""
    verdict = "verified" if report.passed else "FAILED"
    say(f"\n{verdict}, in {report.seconds:,.0f} s; report: {near(file)}", f"link {file.as_uri()}")
