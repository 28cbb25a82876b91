"""Every dependency and permission, checked."""

import typer

from leanops.entrypoints.cli.exits import PROBLEMS
from leanops.entrypoints.cli.options import Json
from leanops.entrypoints.cli.output import counted, print_json_array, say
from leanops.entrypoints.cli.progress import waiting

_STYLES = {True: None, False: "bold red"}


def doctor(as_json: Json = False) -> None:
    """Check all that is needed here, and say how to fix it."""
    from leanops.runtimes.doctor import check_all

    with waiting("checking; jars that are missing are fetched"):
        findings = list(check_all())
    if as_json:
        print_json_array(findings)
    else:
        for finding in findings:
            say(f"{'ok' if finding.ok else 'PROBLEM':<8} {finding.name:<9} {finding.found}", _STYLES[finding.ok])
            if finding.fix and not finding.ok:
                say(f"{'':<8} {'':<9} fix: {finding.fix}")
        problems = sum(not finding.ok for finding in findings)
        say("all is well" if not problems else counted(problems, "problem"))
    if any(not finding.ok for finding in findings):
        raise typer.Exit(PROBLEMS)
