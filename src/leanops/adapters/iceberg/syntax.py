"""The tables and filters of a SELECT, read from DuckDB's own syntax tree."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from typing import Any

from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from leanops.domain.errors import UsageError

Node = dict[str, Any]
_COMPARISONS: dict[str, Any] = {
    "COMPARE_IN": In,
    "COMPARE_EQUAL": EqualTo,
    "COMPARE_LESSTHAN": LessThan,
    "COMPARE_LESSTHANOREQUALTO": LessThanOrEqual,
    "COMPARE_GREATERTHAN": GreaterThan,
    "COMPARE_GREATERTHANOREQUALTO": GreaterThanOrEqual,
}
_LARGEST = {"int": 2**31 - 1, "long": 2**63 - 1}
# Beyond microseconds DuckDB and Python may round differently.
_NANOSECONDS = re.compile(r"\.\d{7}")


@dataclass(frozen=True)
class Syntax:
    """The tree of one SELECT, and the values of its parameters."""

    tree: Node
    parameters: Sequence[Any] = ()

    @staticmethod
    def parse(serialized: str, parameters: Sequence[Any]) -> "Syntax":
        """From the answer of `json_serialize_sql`; raises UsageError unless it is one SELECT."""
        answer = json.loads(serialized)
        if answer["error"] and answer["error_type"] == "parser":
            raise UsageError(f"the statement cannot be read: {answer['error_message']}")
        if answer["error"] or len(answer["statements"]) != 1:
            raise UsageError("only one SELECT at a time can be asked; the tables are read-only here")
        return Syntax(answer["statements"][0], parameters)

    def asks_for_tables(self) -> bool:
        """Whether it is SHOW TABLES or the like."""
        return any(node.get("show_type") == "SHOW_SPECIAL" for node in _nodes(self.tree))

    def tables(self) -> list[str]:
        """Every table it reads, once per mention, by the name it is given; common table expressions left out."""
        local = {entry["key"].lower() for node in _nodes(self.tree) for entry in _ctes(node)}
        named = [_name(node) for node in _nodes(self.tree) if node.get("type") == "BASE_TABLE"]
        return [name for name in named if "." in name or name not in local]

    def filter_for(self, table: str, columns: Mapping[str, str]) -> BooleanExpression:
        """What its WHERE asks of a table it reads once and alone; an optimisation, the engine asks it all again."""
        if self.tables().count(table) != 1:
            return AlwaysTrue()
        for node in _nodes(self.tree):
            source = node.get("from_table") if node.get("type") == "SELECT_NODE" else None
            if source and source.get("type") == "BASE_TABLE" and _name(source) == table:
                is_sampled = source.get("sample") or node.get("sample") or source.get("column_name_alias")
                names = {source["table_name"].lower(), str(source.get("alias") or "").lower()}
                return AlwaysTrue() if is_sampled else self._conjunction(node.get("where_clause"), names, columns)
        return AlwaysTrue()

    def _conjunction(self, where: Node | None, names: set[str], columns: Mapping[str, str]) -> BooleanExpression:
        """The comparisons of a column with constants among the terms of an AND."""
        if not where:
            return AlwaysTrue()
        if where.get("type") == "CONJUNCTION_AND":
            terms = (self._conjunction(term, names, columns) for term in where["children"])
            return reduce(And, terms)
        return self._comparison(where, names, columns) or AlwaysTrue()

    def _comparison(self, term: Node, names: set[str], columns: Mapping[str, str]) -> BooleanExpression | None:
        comparison = _COMPARISONS.get(str(term.get("type")))
        if comparison is None:
            return None
        column, *others = term["children"] if comparison is In else (term["left"], term["right"])
        name = _column(column, names, columns)
        values = [_value(self._constant(other), columns[name]) for other in others] if name else [None]
        if name is None or None in values:
            return None
        expression: BooleanExpression = comparison(name, values if comparison is In else values[0])
        return expression

    def _constant(self, node: Node) -> Any:
        """A constant as Python has it, or None where it is anything but a text or a whole number."""
        if node.get("class") == "PARAMETER":
            at = str(node.get("identifier", ""))
            return self.parameters[int(at) - 1] if at.isdigit() and int(at) <= len(self.parameters) else None
        literal = node.get("literal") or {}
        match literal.get("kind"):
            case "STRING":
                return literal["text"]
            case "INTEGER":
                return int(literal["text"])
        return None


def _nodes(value: Any) -> Iterator[Node]:
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _nodes(inner)


def _ctes(node: Node) -> list[Node]:
    entries: list[Node] = (node.get("cte_map") or {}).get("map") or []
    return entries


def _name(table: Node) -> str:
    parts = (table.get("catalog_name"), table.get("schema_name"), table.get("table_name"))
    return ".".join(part for part in parts if part).lower()


def _column(node: Node, names: set[str], columns: Mapping[str, str]) -> str | None:
    parts = [part.lower() for part in node.get("column_names", [])]
    if len(parts) == 2 and parts[0] in names and parts[0] not in columns:
        parts = parts[1:]
    return parts[0] if len(parts) == 1 and parts[0] in columns else None


def _value(constant: Any, kind: str) -> Any:
    """The constant as a value of the column's type, or None where that is not plain."""
    if kind == "string" and isinstance(constant, str):
        return constant
    if kind == "timestamptz" and isinstance(constant, str):
        return _moment(constant)
    is_number = isinstance(constant, int) and not isinstance(constant, bool)
    return constant if is_number and abs(constant) <= _LARGEST.get(kind, -1) else None


def _moment(text: str) -> str | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if _NANOSECONDS.search(text):
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
