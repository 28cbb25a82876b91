"""Names, types and texts as Spark SQL writes them."""


def quoted(name: str) -> str:
    """A column or table name."""
    return f"`{name.replace('`', '``')}`"


def spark_type(iceberg: str) -> str:
    """The name of an Iceberg type."""
    return {"long": "bigint", "timestamp": "timestamp_ntz", "timestamptz": "timestamp"}.get(iceberg, iceberg)


def literal(text: str) -> str:
    """A string; quotes, backslashes and what is not plain ASCII are escaped by their codes."""
    units = text.encode("utf-16-be")
    codes = (int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2))
    return "'" + "".join(chr(code) if _is_plain(code) else f"\\u{code:04x}" for code in codes) + "'"


def _is_plain(code: int) -> bool:
    return 0x20 <= code < 0x7F and chr(code) not in "'\\"
