"""Types and a rule that the product does not have: what it takes to add one."""

import re
from uuid import UUID

from leanops.domain.payload.flatten import STRING
from leanops.domain.schema import casts
from leanops.domain.schema.casts import Plain
from leanops.domain.schema.parse import Text
from leanops.domain.schema.rules import RuleEntry
from leanops.domain.schema.types import TypeEntry

_UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"

UUID_TYPE = TypeEntry(
    iceberg="string",
    like="a UUID like 123e4567-e89b-12d3-a456-426614174000",
    read=lambda text, _: UUID(text) if re.fullmatch(_UUID, text) else None,
    plain=lambda _kind, _form: (Plain(_UUID),),
    accepts="32 lower-case hex digits in five groups",
    examples="`123e4567-e89b-12d3-a456-426614174000`",
    widens_to="STRING",
    inferred_from=frozenset({STRING}),
)
FLOAT_TYPE = TypeEntry(
    # No type of the product is stored so.
    iceberg="float",
    like="a number like 7.5",
    read=casts.double_in,
    accepts="a number; the nearest single is kept",
    examples="`1.5`",
    numbers="real",
    widens_to="DOUBLE",
)
MULTIPLE_OF = RuleEntry(
    reads=Text,
    what="The value is a multiple of it.",
    reports="rule_multiple_of",
    message="is no multiple of {}",
    refuses=lambda value, step: value % step != 0,
    is_relaxed=lambda new, old: old % new == 0,
    goes_with=lambda entry: entry.numbers == "exact",
)
