"""Topics taken over from a Pub/Sub project."""

import os
import shlex
import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leanops.domain.errors import PermanentError, UsageError
from leanops.entrypoints.cli.exits import PROBLEMS
from leanops.entrypoints.cli.home import opened
from leanops.entrypoints.cli.options import Json
from leanops.entrypoints.cli.output import note, print_json_array, print_table, say

if TYPE_CHECKING:
    from leanops.runtimes.runtime import Runtime
    from leanops.usecases.topics.discover import Found, Wanted

HOOK_VARIABLE = "TFVARS_FILE"
STANDARD_ERROR = 2
Project = Annotated[
    str | None,
    typer.Option("--project", envvar="GOOGLE_CLOUD_PROJECT", help="Google project; or set GOOGLE_CLOUD_PROJECT."),
]
Prefix = Annotated[str, typer.Option("--prefix", help="Only topics whose id begins so.")]
Labels = Annotated[
    list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="Only topics with this label; repeatable.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]
Tfvars = Annotated[
    Path | None,
    typer.Option("--tfvars", metavar="FILE", help="Create nothing; write every topic for Terraform into this file."),
]
Hook = Annotated[
    str | None,
    typer.Option("--hook", metavar="CMD", help=f"Run this once the file is written; {HOOK_VARIABLE} says where it is."),
]


def discover(
    project: Project = None,
    prefix: Prefix = "",
    labels: Labels = None,
    dry_run: DryRun = False,
    tfvars: Tfvars = None,
    hook: Hook = None,
    as_json: Json = False,
) -> None:
    """Compare with a Pub/Sub project: register new topics with subscription and queue, mark those that are gone."""
    if not project:
        raise UsageError("no Google project; say --project PROJECT, or set GOOGLE_CLOUD_PROJECT")
    if hook and not tfvars:
        raise UsageError("a hook runs after the file of --tfvars is written; say --tfvars FILE too")
    from leanops.usecases.topics.discover import Action, Wanted

    wanted = Wanted(prefix, dict(_label(text) for text in labels or []))
    with opened() as runtime:
        found = _discovered(runtime, project, wanted, create=not (dry_run or tfvars))
        if tfvars and not dry_run:
            _write(runtime, tfvars, found)
    if tfvars and hook and not dry_run:
        _run(hook, tfvars)
    if as_json:
        print_json_array(found)
    else:
        _print(found)
        if dry_run or tfvars:
            note("nothing was created or marked" if dry_run else f"{tfvars} is written; nothing was created or marked")
    if {one.action for one in found} & {Action.REFUSED, Action.FAILED}:
        raise typer.Exit(PROBLEMS)


def _discovered(runtime: "Runtime", project: str, wanted: "Wanted", *, create: bool) -> "list[Found]":
    """What was found, and done unless nothing is to be created."""
    from leanops.runtimes.bridge import topic_listing
    from leanops.usecases.topics import discover

    with topic_listing(project) as listing:
        return discover.discover(
            runtime.platform,
            listing,
            runtime.queue,
            wanted,
            subscription=runtime.settings.bridge.subscription,
            dry_run=not create,
        )


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise UsageError(f"{text!r} is no label; write it as --label KEY=VALUE")
    return key, value


def _write(runtime: "Runtime", file: Path, found: "list[Found]") -> None:
    from leanops.usecases.topics.discover import tfvars

    try:
        # Terraform must never read half of it.
        scratch = file.with_name(f".{file.name}.new")
        scratch.write_bytes(tfvars(runtime.platform, found))
        scratch.replace(file)
    except OSError as refused:
        raise UsageError(f"{file} cannot be written ({refused.strerror}); choose another place") from None


def _run(hook: str, file: Path) -> None:
    """Run the hook; what it prints goes to standard error, because ours is for the reader of the result."""
    try:
        words = shlex.split(hook)
        ended = subprocess.run(
            words, env=os.environ | {HOOK_VARIABLE: str(file.resolve())}, stdout=STANDARD_ERROR, check=False
        )
    except (OSError, ValueError, IndexError) as wrong:
        why = getattr(wrong, "strerror", None) or "it is no command"
        raise UsageError(f"the hook cannot be run ({why}); {file} is written") from None
    if ended.returncode:
        raise PermanentError(f"the hook ended with {ended.returncode}; {file} is written, run the hook again")


def _print(found: "list[Found]") -> None:
    from leanops.usecases.topics.discover import Action

    rows = [[one.topic, one.action.value, one.reason] for one in found if one.action is not Action.KNOWN]
    if rows:
        print_table(("topic", "action", "reason"), rows)
    actions = Counter(one.action.value for one in found)
    say(", ".join(f"{count:,} {action}" for action, count in actions.items()) or "no topic fits")
