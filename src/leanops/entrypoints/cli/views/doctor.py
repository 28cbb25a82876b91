"""Every dependency and permission, checked."""

import typer

from leanops.domain.words import counted
from leanops.entrypoints.cli.options import PROBLEMS, Json
from leanops.entrypoints.cli.output import print_json_array, say
from leanops.entrypoints.cli.progress import waiting


def doctor(as_json: Json = False) -> None:
    """Check this machine and home, name versions, and say how to fix problems. The exit code is 3 if there are any."""
    from leanops.runtimes.doctor import check_all

    with waiting("checking; missing jars are downloaded"):
        findings = list(check_all())
    problems = sum(not finding.ok for finding in findings)
    if as_json:
        print_json_array(findings)
    else:
        for finding in findings:
            state, style = ("ok", None) if finding.ok else ("PROBLEM", "bold red")
            say(f"{state:<8} {finding.name:<9} {finding.found}", style)
            if finding.fix and not finding.ok:
                say(f"{'':<8} {'':<9} fix: {finding.fix}")
        say(counted(problems, "problem") if problems else "no problems")
    if problems:
        raise typer.Exit(PROBLEMS)
