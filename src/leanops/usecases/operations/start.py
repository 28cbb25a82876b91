"""The tables of a topic made anew from what they were made from, while readers keep the live ones."""

from leanops.domain.errors import UsageError
from leanops.domain.schema.model import Schema
from leanops.domain.table.operation import Accept, Accepted, Scope, Stage, Work
from leanops.usecases.leases import Lease, held
from leanops.usecases.operation_log import begin, check_free
from leanops.usecases.operations.compare import Comparison
from leanops.usecases.operations.execute import carry_out
from leanops.usecases.operations.places import has_head, has_rows, new_operation, settle
from leanops.usecases.operations.shadow import Progress, quiet
from leanops.usecases.platform import Platform
from leanops.usecases.topics.registry import check_running, find_topic


def rebuild_topic(
    platform: Platform,
    topic: str,
    actor: str,
    *,
    scope: Scope = Scope.BOTH,
    accept: Accepted = Accept.NONE,
    new_key: bool = False,
    progress: Progress = quiet,
) -> Comparison | None:
    """Standardized from RAW and Curated from it, or Curated alone, under the active schema.

    With `new_key` what is sealed may be sealed with another key than before.
    """
    if new_key and scope != Scope.BOTH:
        raise UsageError("both tables are sealed with one key; rebuild both: leave --curated out")
    find_topic(platform, topic)
    schema = platform.schemas.active(topic)
    table = platform.rules.databases.standardized_table(topic)
    # From RAW a table can be made whatever became of its watermark; from Standardized it cannot.
    is_there = has_head(platform, table) if scope == Scope.BOTH else has_rows(platform, table)
    if schema is None or not is_there:
        raise UsageError(f"topic {topic!r} has no tables to rebuild yet; run: leanops cycle --topic {topic}")
    with held(platform, f"topic/{topic}", wait_s=platform.rules.wait_s) as lease:
        check_free(platform, topic)
        check_running(platform, topic)
        # Both tables are made from RAW, so what is wrong with a batch in them goes with it.
        settle(platform, topic, schema, lease, accept_counts=scope == Scope.BOTH)
        return rebuild_held(
            platform, topic, schema, lease, actor, scope=scope, accept=accept, new_key=new_key, progress=progress
        )


def rebuild_held(
    platform: Platform,
    topic: str,
    schema: Schema,
    lease: Lease,
    actor: str,
    *,
    scope: Scope,
    accept: Accepted,
    new_key: bool = False,
    progress: Progress = quiet,
) -> Comparison | None:
    """The same under a lease that is held, for a topic whose batches are settled."""
    work = Work.REBUILD if scope == Scope.BOTH else Work.RECURATE
    operation = new_operation(
        platform,
        topic,
        work,
        actor=actor,
        schema=schema,
        active=schema,
        scope=scope,
        accept=accept,
        new_key=new_key,
        lease=lease,
    )
    return carry_out(platform, begin(platform, operation, Stage.BUILDING, lease), lease, progress)
