"""Keys whose newest version fails a schema, and those of them of which RAW has an older version that passes."""

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from leanops.domain.schema.model import Schema
from leanops.transforms.frames.curate import judged
from leanops.transforms.frames.standardize import Cells, older_rows
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
    of_failing = events.valid.join(failing.select(KEY), KEY, "left_semi")
    refuses = schema.policies.unknown_fields == "quarantine"
    read = older_rows(of_failing, newest, Cells(paths, events.positions, refuses))
    return judged(read, sources, None).where("failures IS NULL").select(KEY).distinct()
