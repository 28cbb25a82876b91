"""Writes the parts of docs/reference that follow from the code: `python docs/generate.py`."""

import json
from collections.abc import Iterator
from enum import EnumType
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer.main

from leanops.domain.schema.model import Schema
from leanops.domain.schema.rules import RULES
from leanops.domain.schema.types import TYPES, type_names
from leanops.entrypoints.cli.app import app
from leanops.settings import SETTINGS, Settings

REFERENCE = Path(__file__).parent / "reference"
MARK = "<!-- From here on written by docs/generate.py from the code. -->\n"


def cli_page() -> str:
    """The hand-written part up to the mark, then every command with its arguments and options."""
    parts = ["\n## Commands\n"]
    for words, command in commands(typer.main.get_command(app), ("leanops",)):
        arguments = [_name(param) for param in command.params if param.param_type_name == "argument"]
        parts.append(f"### `{' '.join([*words, *arguments])}`\n\n{' '.join(command.help.split())}\n")
        rows = [_row(parameter) for parameter in command.params if parameter.name != "help"]
        if rows:
            parts.append("| | |\n|---|---|\n" + "\n".join(rows) + "\n")
    return _written_by_hand("cli.md") + "\n".join(parts)


def commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command, with the words that call it."""
    for name, child in command.commands.items():
        if getattr(child, "commands", None):
            yield from commands(child, (*words, name))
        else:
            yield (*words, name), child


def settings_page() -> str:
    """The hand-written part up to the mark, then every section with its settings."""
    parts, default = [], Settings()
    for section, settings in groupby(SETTINGS.values(), attrgetter("section")):
        parts.append(f"\n## `[{section}]`\n\n{getattr(default, section).__doc__}\n")
        parts.append("| setting | variable | default | |\n|---|---|---|---|")
        parts += [
            f"| `{s.name}` | `{s.variable}` | `{json.dumps(s.value_in(default))}` | {s.meaning} |" for s in settings
        ]
    return _written_by_hand("settings.md") + "\n".join(parts) + "\n"


def casts_page() -> str:
    """The hand-written part up to the mark, then every type and every rule."""
    types = [
        f"| `{name}` | {entry.accepts} | {entry.examples} | {entry.refuses} |"
        for name, entry in zip(type_names(), TYPES.values(), strict=True)
    ]
    rules = [f"| `{name}` | {entry.what} | `{entry.reports}` |" for name, entry in RULES.items()]
    parts = [
        "\n## Types\n\n| type | accepted text | examples | refused |\n|---|---|---|---|",
        *types,
        "\n## Rules\n\n| rule | its limit | failure |\n|---|---|---|",
        *rules,
    ]
    return _written_by_hand("casts.md") + "\n".join(parts) + "\n"


def schema_file() -> str:
    """The JSON Schema of a schema file."""
    described = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Schema.model_json_schema()}
    return json.dumps({**described, "title": "Lean-Ops schema file"}, indent=2) + "\n"


def _written_by_hand(page: str) -> str:
    return (REFERENCE / page).read_text(encoding="utf-8").split(MARK)[0] + MARK


def _row(parameter: Any) -> str:
    # A table's cell ends at every | but an escaped one, even inside code; a heading's code shows the backslash.
    name, meaning = (text.replace("|", "\\|") for text in (_name(parameter), parameter.help + _default(parameter)))
    return f"| `{name}` | {meaning} |"


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        named = str(parameter.metavar) + ("..." if parameter.nargs == -1 else "")
        return named if parameter.required else f"[{named}]"
    return ", ".join([*parameter.opts, *parameter.secondary_opts]) + (
        "" if parameter.is_flag else f" {_value(parameter)}"
    )


def _value(parameter: Any) -> str:
    """What an option takes: a metavar, the choices, or the option's own name."""
    if parameter.metavar:
        return str(parameter.metavar)
    return "|".join(_choices(parameter.type_descriptor.annotation)) or str(parameter.opts[0].strip("-").upper())


def _choices(annotation: Any) -> list[str]:
    """The values of the first Literal or enumeration within a type."""
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    if isinstance(annotation, EnumType):
        return [str(member) for member in annotation]
    return next(filter(None, map(_choices, get_args(annotation))), [])


def _default(parameter: Any) -> str:
    value = parameter.default
    return "" if value in (None, False, "") or callable(value) else f" `{value}` if left out."


PAGES = {"cli.md": cli_page, "settings.md": settings_page, "casts.md": casts_page, "schema.json": schema_file}

if __name__ == "__main__":
    for page, written in PAGES.items():
        (REFERENCE / page).write_text(written(), encoding="utf-8")
