"""PII leaves Curated and error tables only in these shapes."""

import hashlib
from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StructField, StructType

SEALED = r"\A[0-9a-f]{64}\z"
"""What a sealed text looks like."""
_SHOWN = 4
_BLOCK = 64
_INNER, _OUTER = "_seal_inner", "_seal_outer"


def masked(text: Column) -> Column:
    """The last four characters, the others as stars; nothing of a text that is no longer than that."""
    hidden = F.greatest(F.length(text) - _SHOWN, F.lit(0))
    short = F.expr("repeat('*', 4)").substr(F.lit(1), F.length(text))
    return F.when(hidden == 0, short).otherwise(
        F.concat(F.regexp_replace(text.substr(F.lit(1), hidden), r"(?s).", "*"), text.substr(hidden + 1, F.lit(_SHOWN)))
    )


def with_key(rows: DataFrame, secret: bytes) -> DataFrame:
    """Rows that can be `sealed`. The key is joined to them, for one in an expression would show in plans and logs."""
    key = (hashlib.sha256(secret).digest() if len(secret) > _BLOCK else secret).ljust(_BLOCK, b"\0")
    pads = [bytearray(byte ^ pad for byte in key) for pad in (0x36, 0x5C)]
    return rows.crossJoin(F.broadcast(_one_row(rows.sparkSession, {_INNER: pads[0], _OUTER: pads[1]})))


def _one_row(session: SparkSession, cells: Mapping[str, bytearray]) -> DataFrame:
    """A row of binary columns; made in Java, for Python's own way goes through a file."""
    jvm: Any = session._jvm
    java: Any = session._jsparkSession
    gateway: Any = session.sparkContext._gateway
    values = gateway.new_array(jvm.java.lang.Object, len(cells))
    for at, cell in enumerate(cells.values()):
        values[at] = cell
    only = jvm.java.util.Collections.singletonList(jvm.org.apache.spark.sql.RowFactory.create(values))
    types = StructType([StructField(name, BinaryType()) for name in cells])
    return DataFrame(java.createDataFrame(only, java.parseDataType(types.json())), session)


def sealed(text: Column) -> Column:
    """HMAC-SHA-256 in hex, as RFC 2104 builds it from the hash."""
    inner = F.sha2(F.concat(F.col(_INNER), text.cast("binary")), 256)
    return F.sha2(F.concat(F.col(_OUTER), F.unhex(inner)), 256)
