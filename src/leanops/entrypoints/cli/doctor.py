"""Every dependency and permission, checked."""

import typer

from leanops.entrypoints.cli.options import Json
from leanops.entrypoints.cli.output import colored, console, counted, print_json_array, say, table
from leanops.entrypoints.cli.progress import waiting

FOUND_PROBLEMS = 3


def doctor(as_json: Json = False) -> None:
    """Check all that is needed here, and say how to fix it."""
    from leanops.runtimes.checks import check_all

    with waiting("checking; jars that are missing are fetched"):
        findings = list(check_all())
    if as_json:
        print_json_array(finding.as_json() for finding in findings)
    else:
        rows = [
            [
                finding.name,
                colored("ok", "green") if finding.ok else colored("problem", "bold red"),
                finding.found,
                "" if finding.ok else finding.fix,
            ]
            for finding in findings
        ]
        console().print(table(("check", "", "found", "how to fix it"), rows))
        problems = sum(not finding.ok for finding in findings)
        say("all is well" if not problems else counted(problems, "problem"))
    if any(not finding.ok for finding in findings):
        raise typer.Exit(FOUND_PROBLEMS)
