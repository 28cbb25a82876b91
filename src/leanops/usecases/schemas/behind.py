"""Keys whose newest version fails a schema, and those of them of which RAW has an older version that passes."""

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from leanops.domain.schema.model import Schema
from leanops.transforms.frames import standardize as rows_of
from leanops.transforms.frames.curate import judged
from leanops.transforms.frames.versions import VERSION, with_order
from leanops.transforms.judge import KEY, Source
from leanops.usecases.schemas.raw_sample import RawEvents


def kept_keys(
    events: RawEvents,
    failing: DataFrame,
    newest: DataFrame,
    schema: Schema,
    sources: Sequence[Source],
    paths: Mapping[str, str],
) -> DataFrame:
    """The keys among the failing ones that keep a row in Curated: an older version of them passes."""
    current = with_order(newest).select("record_key", "first_seen_ts", F.struct(*VERSION).alias("newest"))
    older = (
        events.read.where("rule IS NULL")
        .join(failing.select(KEY), KEY, "left_semi")
        .join(current, "record_key")
        .where(F.struct(*VERSION) < F.col("newest"))
    )
    if schema.policies.unknown_fields == "quarantine":
        older = rows_of.with_refused(older, paths, events.positions).where("refused IS NULL")
    read = rows_of.table_rows(older, topic="", columns=paths, positions=events.positions, batch_seq=0, batch_id="plan")
    return judged(read, sources, None).where("failures IS NULL").select(KEY).distinct()
