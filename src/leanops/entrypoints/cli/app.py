"""The command line: all commands, and the one place that turns a failure into a message and an exit code."""

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from leanops.domain.errors import LeanOpsError, UsageError
from leanops.entrypoints.cli import home
from leanops.entrypoints.cli.emulation import demo, emulate, soak
from leanops.entrypoints.cli.ingest import breaker, bridge, dlq, publish, serve
from leanops.entrypoints.cli.operations import cycle, rebuild
from leanops.entrypoints.cli.options import DONE, FAILED, INTERRUPTED, USAGE
from leanops.entrypoints.cli.output import printable
from leanops.entrypoints.cli.schemas import lint, schema
from leanops.entrypoints.cli.topics import topics
from leanops.entrypoints.cli.views import doctor, drift, errors, sql, status

app = typer.Typer(
    name="leanops",
    help="Event streams into Iceberg tables whose counts add up. Start with: leanops demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("init")(home.init)
app.command("demo")(demo.demo)
app.add_typer(topics.app, name="topics", help="Topics: add, discover, list, show, pause, resume, retry, unlock.")
app.command("serve")(serve.serve)
app.command("publish")(publish.publish)
app.command("bridge")(bridge.bridge)
schema.app.command("lint")(lint.lint)
app.add_typer(schema.app, name="schema", help="Schemas: infer, lint, plan, deploy, show, diff, history, rollback.")
app.command("cycle")(cycle.cycle)
app.command("rebuild")(rebuild.rebuild)
app.command("rollback")(rebuild.rollback)
app.command("status")(status.status)
app.command("sql")(sql.sql)
app.add_typer(errors.app, name="errors", help="Quarantined rows: list, show.")
app.add_typer(dlq.app, name="dlq", help="Dead letters: list, show, drain, replay, discard.")
app.add_typer(breaker.app, name="breaker", help="Circuit breakers: show, open, close.")
emulate.app.command("soak")(soak.soak)
app.add_typer(emulate.app, name="emulate", help="Emulation: clean, day1, schema, day2, day4, verify, full, soak.")
app.command("drift")(drift.drift)
app.command("doctor")(doctor.doctor)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"leanops {version('leanops')}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Print the full traceback of a failure.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options that every command takes."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and end the process with its exit code."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(words: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    # Payloads and keys: what this process and its children (Java too) write must be readable by the owner only.
    os.umask(0o077)
    debug = "--debug" in words
    if debug:
        _show_logs()
    try:
        code = app([word for word in words if word != "--debug"], prog_name="leanops", standalone_mode=False)
        if code == INTERRUPTED:
            # Typer swallows Ctrl-C without a message.
            raise KeyboardInterrupt
        return code if isinstance(code, int) else DONE
    except BrokenPipeError:
        # The reader closed the pipe; the rest of the buffer has nowhere to go.
        sys.stdout = None
        return FAILED
    except (KeyboardInterrupt, typer.Abort):
        return _complain("interrupted", INTERRUPTED)
    except typer.TyperException as misuse:
        message = misuse.format_message()
        if "\n" in message.strip():
            typer.echo(message, err=True)
            return misuse.exit_code
        return _complain(message, misuse.exit_code)
    except Exception as failure:
        if debug:
            traceback.print_exc()
        return _complain(*_explained(failure))


def _explained(failure: Exception) -> tuple[str, int]:
    """The message and the exit code. An exception of a library may quote data, so only its class is named."""
    if isinstance(failure, LeanOpsError):
        return str(failure), USAGE if isinstance(failure, UsageError) else FAILED
    from leanops.runtimes.embedded import find_home
    from leanops.runtimes.failures import keep_trace

    try:
        trace = keep_trace(find_home(), failure)
    except LeanOpsError:  # there is no home to keep it in
        trace = None
    advice = f"{trace}; report it" if trace else "run it again with: leanops --debug …"
    return f"unexpected {type(failure).__name__}; {advice}", FAILED


def _complain(text: str, code: int) -> int:
    typer.echo(f"error: {printable(' '.join(text.split()))}", err=True)
    return code


def _show_logs() -> None:
    import logging

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(name)s: %(message)s")
    logging.getLogger("leanops").setLevel(logging.DEBUG)
