"""Schema files checked together: every problem of each with its line, and what two files cannot both have."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from leanops.domain.errors import InvalidSchemaError
from leanops.domain.problems import Code, Problem, quoted
from leanops.domain.schema.document import lines_of, read_document
from leanops.domain.schema.model import Schema, schema_from_json

FOLDER = "schemas"


@dataclass(frozen=True)
class Finding:
    """A problem, the file it is in and the line it is on."""

    file: str
    line: int
    problem: Problem

    def as_json(self) -> dict[str, Any]:
        """The problem's own fields beside its place: readers of the array get one flat object a problem."""
        return {"file": self.file, "line": self.line, **vars(self.problem)}


def lint(files: Mapping[str, bytes]) -> list[Finding]:
    """Every problem of the files, in the order of the files and of the lines in them."""
    texts: dict[str, str] = {}
    findings: list[Finding] = []
    for file, data in files.items():
        try:
            texts[file] = data.decode()
        except UnicodeDecodeError as broken:
            line = data.count(b"\n", 0, broken.start) + 1
            wrong = Problem(Code.NOT_UTF8, "", f"not UTF-8: byte {broken.start:,}", "save the file as UTF-8")
            findings.append(Finding(file, line, wrong))
    for file, text in texts.items():
        problems = _problems(file, text)
        lines = lines_of(text, [problem.pointer for problem in problems])
        findings += [Finding(file, line, problem) for line, problem in zip(lines, problems, strict=True)]
    order = {file: at for at, file in enumerate(files)}
    return sorted([*findings, *_tables_twice(texts)], key=lambda finding: (order[finding.file], finding.line))


def topic_of(file: str) -> str:
    """The topic of a file in `schemas/{topic}/…`; any other file is a topic of its own."""
    parts = PurePath(file).parts
    below = [at for at, part in enumerate(parts[:-2]) if part == FOLDER]
    return parts[below[-1] + 1] if below else file


def _problems(file: str, text: str) -> tuple[Problem, ...]:
    try:
        schema = schema_from_json(text, file)
    except InvalidSchemaError as wrong:
        return wrong.problems
    return tuple(sealed_key_problems(schema))


def sealed_key_problems(schema: Schema) -> Iterator[Problem]:
    """Columns with rules or a mask that only a key in plain text could meet; active files may have them already."""
    for at, column in enumerate(schema.payload_columns):
        asks = "rules" if column.rules.written else "pii" if column.pii == "mask" else None
        if asks and schema.reads_sealed_key(column):
            message = "the key is sealed, so this column has its HMAC and not its text"
            hint = 'leave its rules out, and write "pii": "hmac" or "drop"'
            yield Problem(Code.PII_SEALED_ALREADY, f"/payload_columns/{at}/{asks}", message, hint)


def _tables_twice(texts: Mapping[str, str]) -> Iterator[Finding]:
    """Two topics cannot share a table; an active file and a pending one of one topic do."""
    owners: dict[str, str] = {}
    for file, text in texts.items():
        value = read_document(text).value
        table = value.get("table_name") if isinstance(value, dict) else None
        if not isinstance(table, str):
            continue
        first = owners.setdefault(table, file)
        if topic_of(first) != topic_of(file):
            message = f"{quoted(table)} is the table of {quoted(first)} too"
            problem = Problem(Code.TABLE_TWICE, "/table_name", message, "give every topic a table of its own")
            yield Finding(file, lines_of(text, ["/table_name"])[0], problem)
