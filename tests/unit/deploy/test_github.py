"""The workflow for a repository of schemas: its commands are ours, its scripts run, and a fork reaches no rows."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from leanops.entrypoints.cli.app import app
from tests.support.builders import column, schema_text
from tests.support.places import ROOT

WORKFLOW: dict[Any, Any] = yaml.safe_load((ROOT / "deploy/github/schemas.yml").read_text(encoding="utf-8"))
JOBS = WORKFLOW["jobs"]
SCRIPTS = {
    step.get("name", step["run"]): step["run"] for job in JOBS.values() for step in job["steps"] if "run" in step
}
COMMANDS = [line.strip() for script in SCRIPTS.values() for line in script.splitlines() if "leanops schema" in line]
ECHO = '#!/bin/sh\necho "leanops $*"\nexit "${CODE:-0}"\n'


def parsed(command: str) -> str:
    """The words of the command of ours that a line of shell gives; a misuse of it raises."""
    words = shlex.split(re.split(r">>|\|\|", command)[0])[1:]
    found: Any = typer.main.get_command(app)
    for at, word in enumerate(words):
        if word not in getattr(found, "commands", {}):
            found.make_context("leanops", words[at:])
            return " ".join(words[:at])
        found = found.commands[word]
    raise AssertionError(f"{command} names no command")


def run(script: str, folder: Path, path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A step as a runner runs it: bash that stops at the first failure."""
    env = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}", **variables}
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script], cwd=folder, env=env, capture_output=True, text=True, check=False
    )


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *identity, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def schemas(tmp_path: Path) -> Path:
    """A repository with two schemas, of which the last commit changed one."""
    folder = tmp_path / "repository"
    for topic in ("orders", "users"):
        (folder / "schemas" / topic).mkdir(parents=True)
        (folder / "schemas" / topic / "schema.json").write_text(schema_text(table_name=topic))
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    git(folder, "update-ref", "refs/remotes/origin/main", "HEAD")
    (folder / "schemas/orders/schema.json").write_text(schema_text(column("Bad"), table_name="orders"))
    git(folder, "commit", "--quiet", "-a", "-m", "second")
    return folder


@pytest.fixture
def echo(tmp_path: Path) -> Path:
    """A leanops that only says what it was told."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "leanops").write_text(ECHO)
    (folder / "leanops").chmod(0o755)
    return folder


def test_every_command_of_the_workflow_is_one_of_ours_with_options_it_has() -> None:
    assert [parsed(command) for command in COMMANDS] == ["schema lint", "schema plan", "schema deploy"]


def test_an_option_that_no_command_has_would_be_noticed() -> None:
    with pytest.raises(typer.TyperException, match="nosuch"):
        parsed("leanops schema plan a b --nosuch")


def test_a_pull_request_is_linted_and_planned_and_a_merge_is_deployed() -> None:
    assert set(WORKFLOW[True]) == {"pull_request", "push"}
    assert (JOBS["plan"]["needs"], JOBS["deploy"]["needs"]) == ("lint", "lint")
    assert JOBS["deploy"]["if"] == "github.event_name == 'push'"


def test_only_the_comment_may_write_and_a_fork_reaches_no_rows() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert {name for name, job in JOBS.items() if "write" in str(job.get("permissions"))} == {"plan"}
    assert "head.repo.full_name == github.repository" in JOBS["plan"]["if"]
    # What a pull request says must reach the shell as a variable, never as text of the script.
    assert [script for script in SCRIPTS.values() if "${{" in script] == []


def test_the_lint_step_annotates_the_line_and_fails(schemas: Path) -> None:
    done = run(SCRIPTS["Lint"], schemas, Path(sys.executable).parent)
    assert done.returncode == 3
    assert done.stdout.startswith("::error file=schemas/orders/schema.json,line=1,title=bad_name::")


@pytest.mark.parametrize(("code", "ends"), [("0", 0), ("3", 0), ("2", 1)])
def test_the_plan_step_writes_a_comment_for_each_changed_file(schemas: Path, echo: Path, code: str, ends: int) -> None:
    done = run(SCRIPTS["Plan"], schemas, echo, GITHUB_BASE_REF="main", CODE=code)
    assert (done.returncode, done.stderr) == (ends, "")
    said = (schemas / "plan.md").read_text()
    assert "### orders\n```text\nleanops schema plan orders schemas/orders/schema.json\n```" in said
    assert "users" not in said


def deployed(*topics: str) -> str:
    return "".join(f"leanops schema deploy {topic} schemas/{topic}/schema.json --yes\n" for topic in topics)


def test_the_deploy_step_deploys_what_the_merge_changed(schemas: Path, echo: Path) -> None:
    done = run(SCRIPTS["Deploy"], schemas, echo, BEFORE=git(schemas, "rev-parse", "HEAD~1"))
    assert (done.returncode, done.stdout, done.stderr) == (0, deployed("orders"), "")


@pytest.mark.parametrize("before", ["0" * 40, "1234" * 10, ""], ids=["first push", "forced push", "none"])
def test_the_deploy_step_deploys_everything_where_nothing_is_known_to_be_before(
    schemas: Path, echo: Path, before: str
) -> None:
    done = run(SCRIPTS["Deploy"], schemas, echo, BEFORE=before)
    assert (done.returncode, done.stdout, done.stderr) == (0, deployed("orders", "users"), "")


def test_the_deploy_step_goes_on_after_a_file_that_is_refused_and_fails_in_the_end(schemas: Path, echo: Path) -> None:
    done = run(SCRIPTS["Deploy"], schemas, echo, BEFORE="0" * 40, CODE="3")
    assert (done.returncode, done.stdout) == (1, deployed("orders", "users"))


def test_what_is_posted_into_a_pull_request_has_no_values_of_rows() -> None:
    (planned,) = [command for command in COMMANDS if "leanops schema plan" in command and not command.startswith("#")]
    assert "--values" not in planned
