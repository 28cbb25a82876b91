"""PII leaves Curated and error tables only in these shapes."""

import hashlib

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

HIDDEN = "***"
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
    halves = rows.sparkSession.createDataFrame([pads], f"{_INNER} binary, {_OUTER} binary")
    return rows.crossJoin(F.broadcast(halves))


def sealed(text: Column) -> Column:
    """HMAC-SHA-256 in hex, as RFC 2104 builds it from the hash."""
    inner = F.sha2(F.concat(F.col(_INNER), text.cast("binary")), 256)
    return F.sha2(F.concat(F.col(_OUTER), F.unhex(inner)), 256)
