"""Every setting and every command is in the reference, and the reference names nothing that does not exist."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import typer.main

from leanops.entrypoints.cli.app import app
from leanops.settings import SETTINGS
from leanops.transforms.mask import hmac_of
from tests.support.places import ROOT

REFERENCE = ROOT / "docs/reference"


def test_the_hmac_of_the_reference_is_the_one_that_is_computed() -> None:
    page = (REFERENCE / "schema.md").read_text(encoding="utf-8")
    key, value, sealed = re.search(r"^key +(\S+)\nvalue +(\S+)\nHMAC +(\S+)$", page, re.MULTILINE).groups()  # type: ignore[union-attr]
    assert hmac_of(value, key.encode()) == sealed


class Command(NamedTuple):
    name: str
    help: str | None


def commands_of(command: Any, path: tuple[str, ...] = ("leanops",)) -> Iterator[Command]:
    """Every command that can be typed; a group that only holds commands is not one."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield Command(" ".join(path), command.help)
        return
    for name, child in inner.items():
        if not child.hidden:
            yield from commands_of(child, (*path, name))


def code_spans(page: str) -> set[str]:
    """What the page shows as code: `spans`, and the lines of ``` blocks."""
    text = (REFERENCE / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```[^\n]*\n(.*?)```", text, flags=re.DOTALL)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return {line.strip().removeprefix("$ ") for block in blocks for line in block.splitlines()} | set(spans)


def test_every_setting_is_in_the_reference() -> None:
    documented = code_spans("settings.md")
    for setting in SETTINGS.values():
        assert {f"[{setting.section}]", setting.name, setting.variable} <= documented


def test_the_reference_names_no_setting_that_does_not_exist() -> None:
    variables = {span for span in code_spans("settings.md") if re.fullmatch(r"LEANOPS_[A-Z0-9_]+", span)}
    assert variables
    assert variables - {setting.variable for setting in SETTINGS.values()} == set()


def test_every_command_explains_itself() -> None:
    assert [command.name for command in commands_of(typer.main.get_command(app)) if not command.help] == []


def test_every_command_is_in_the_reference() -> None:
    documented = code_spans("cli.md")
    commands = [command.name for command in commands_of(typer.main.get_command(app))]
    assert commands
    assert [
        name for name in commands if not any(span == name or span.startswith(f"{name} ") for span in documented)
    ] == []
