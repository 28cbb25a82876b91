"""Topics registered from a Pub/Sub project."""

import os
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leanops.domain.errors import PermanentError, UsageError
from leanops.entrypoints.cli.home import opened
from leanops.entrypoints.cli.options import PROBLEMS, DryRun, Json, Project, required
from leanops.entrypoints.cli.output import note, print_json_array, print_table, say, tally

if TYPE_CHECKING:
    from leanops.runtimes.runtime import Runtime
    from leanops.usecases.topics.discover import Found

HOOK_VARIABLE = "TFVARS_FILE"
STANDARD_ERROR = 2
Prefix = Annotated[str, typer.Option("--prefix", help="Only topics whose id starts with this.")]
Labels = Annotated[
    list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="Only topics with this label; repeatable.")
]
Tfvars = Annotated[
    Path | None,
    typer.Option(
        "--tfvars", metavar="FILE", help="Write all topics to this file for Terraform instead of creating any."
    ),
]
Hook = Annotated[
    str | None,
    typer.Option(
        "--hook", metavar="CMD", help=f"Command to run once the file is written; it gets the path in {HOOK_VARIABLE}."
    ),
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
    """Register the topics of a Pub/Sub project, with subscription and queue, and mark those that no longer exist."""
    project = required(project)
    if hook and not tfvars:
        raise UsageError("--hook runs after a file is written; give --tfvars FILE too")
    from leanops.runtimes.bridge import topic_listing
    from leanops.usecases.topics import discover as usecase

    wanted = usecase.Wanted(prefix, dict(_label(text) for text in labels or []))
    with opened() as runtime, topic_listing(project) as listing:
        topics = usecase.discover(
            runtime.platform,
            listing,
            runtime.queue,
            wanted,
            subscription=runtime.settings.bridge.subscription,
            dry_run=dry_run or tfvars is not None,
        )
        if tfvars and not dry_run:
            _write(runtime, tfvars, topics)
    if tfvars and hook and not dry_run:
        _run(hook, tfvars)
    if as_json:
        print_json_array(topics)
    else:
        _print(topics)
        if dry_run or tfvars:
            note("nothing was changed" if dry_run else f"{tfvars} was written; nothing else was changed")
    if {topic.action for topic in topics} & {usecase.Action.REFUSED, usecase.Action.FAILED}:
        raise typer.Exit(PROBLEMS)


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise UsageError(f"{text!r} is not a label; write it as --label KEY=VALUE")
    return key, value


def _write(runtime: "Runtime", file: Path, topics: "list[Found]") -> None:
    from leanops.usecases.topics.discover import tfvars

    try:
        # Terraform must never read half a file.
        scratch = file.with_name(f".{file.name}.new")
        scratch.write_bytes(tfvars(runtime.platform, topics))
        scratch.replace(file)
    except OSError as failure:
        raise UsageError(f"{file} cannot be written ({failure.strerror}); choose another place") from None


def _run(hook: str, file: Path) -> None:
    """Run the hook; what it prints goes to standard error, because standard output is for our own result."""
    try:
        words = shlex.split(hook)
        ended = subprocess.run(
            words, env=os.environ | {HOOK_VARIABLE: str(file.resolve())}, stdout=STANDARD_ERROR, check=False
        )
    except (OSError, ValueError, IndexError) as failure:
        why = getattr(failure, "strerror", None) or "it is not a command"
        raise UsageError(f"the hook cannot be run ({why}); {file} was written") from None
    if ended.returncode:
        raise PermanentError(
            f"the hook ended with exit code {ended.returncode}; {file} was written, run the hook again"
        )


def _print(topics: "list[Found]") -> None:
    from leanops.usecases.topics.discover import Action

    rows = [[topic.topic, topic.action, topic.reason] for topic in topics if topic.action is not Action.KNOWN]
    if rows:
        print_table(("topic", "action", "reason"), rows)
    say(tally(topic.action for topic in topics) or "no matching topic")
