"""PII leaves Curated and error tables only in these shapes."""

import hashlib
import hmac

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

HIDDEN = "***"
_SHOWN = 4


def masked(text: Column) -> Column:
    """The last four characters, the others as stars; nothing of a text that is no longer than that."""
    hidden = F.greatest(F.length(text) - _SHOWN, F.lit(0))
    short = F.expr("repeat('*', 4)").substr(F.lit(1), F.length(text))
    return F.when(hidden == 0, short).otherwise(
        F.concat(F.regexp_replace(text.substr(F.lit(1), hidden), r"(?s).", "*"), text.substr(hidden + 1, F.lit(_SHOWN)))
    )


def sealed(text: Column, secret: bytes) -> Column:
    """HMAC-SHA-256 in hex. In Python, because a key in a Spark expression would show in plans and logs."""
    # Without type hints: Spark 4.1 would read them as the signature of a pandas function.
    return F.udf(lambda value: None if value is None else _seal(value, secret), StringType())(text)


def _seal(value: str, secret: bytes) -> str:
    return hmac.new(secret, value.encode(), hashlib.sha256).hexdigest()
