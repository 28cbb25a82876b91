"""A cycle: every topic standardized, then curated; errors and records of a bin written in few commits."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from typing import Any

from leanops.domain.errors import (
    CommitRefusedError,
    LateErrorsError,
    LeanOpsError,
    LeaseHeldError,
    LeaseLostError,
    UnbalancedBatchError,
)
from leanops.domain.schema.model import Policies, Schema
from leanops.domain.table.batch import CURATED, STANDARDIZED, Batch
from leanops.domain.table.definitions import ERRORS
from leanops.domain.table.history import FOLD, KIND, Snapshot
from leanops.domain.table.operation import Accept, Scope
from leanops.domain.table.outcome import Outcome, packed
from leanops.domain.table.warnings import batch_warnings
from leanops.ports.engine import Fold, Written
from leanops.usecases.attempts import forget_failures, record_failure
from leanops.usecases.cycle.fold import fold_tables
from leanops.usecases.cycle.job import Job, TopicResult
from leanops.usecases.cycle.plan import TopicPlan, plan_cycle
from leanops.usecases.journal import abandon
from leanops.usecases.leases import HeldTopic, hold_topic
from leanops.usecases.operation_log import unfinished_operation
from leanops.usecases.operations.start import rebuild_held
from leanops.usecases.operations.unfinished import finish as finish_operation
from leanops.usecases.operations.unfinished import is_due
from leanops.usecases.pipeline import curate, standardize
from leanops.usecases.pipeline.commit import alter, commit
from leanops.usecases.pipeline.drift import note_kinds
from leanops.usecases.pipeline.prepared import Prepared
from leanops.usecases.pipeline.run_history import LayerResult, complete_begun, record
from leanops.usecases.platform import Actor, Platform
from leanops.usecases.topics.registry import PAUSED, find_topic

Progress = Callable[[str, str], None]
_SHARES = {"standardize": 0.0, "commit standardized": 0.45, "curate": 0.55, "commit curated": 0.9}
_GOOD = (Outcome.DONE, Outcome.STANDARDIZED_ONLY, Outcome.NO_NEW_DATA)


def share_done(step: str) -> float:
    """How far a topic has come when a step of its cycle begins."""
    return _SHARES.get(step, 0.0)


def run_cycle(
    platform: Platform,
    topics: Sequence[str] | None = None,
    *,
    force: bool = False,
    accept_errors: bool = False,
    finish: bool = True,
    plans: Sequence[TopicPlan] | None = None,
    progress: Progress = lambda _topic, _step: None,
) -> list[TopicResult]:
    """One pass over all topics (or those named); each ends with one outcome, and none stops another.

    Unfinished operations are resumed too, unless somebody else sees to them. Who has planned it already gives `plans`.
    """
    plans = plan_cycle(platform, topics, force=force) if plans is None else plans
    planned = {plan.topic: plan for plan in plans}
    results = _run(platform, planned, progress, accept_errors=accept_errors)
    # Other topics do not wait for the operation of one.
    for topic, plan in planned.items():
        if finish and plan.unfinished and is_due(platform, plan.unfinished):
            progress(topic, "finish operation")
            finish_operation(platform, plan.unfinished)
            again = {again.topic: again for again in plan_cycle(platform, [topic], force=force)}
            results.update(_run(platform, again, progress, accept_errors=accept_errors))
    return [results[topic] for topic in planned]


def _run(
    platform: Platform, plans: Mapping[str, TopicPlan], progress: Progress, *, accept_errors: bool
) -> dict[str, TopicResult]:
    """The topics that have work, packed into bins."""
    results = {
        topic: TopicResult(topic, plan.outcome, plan.reason)
        for topic, plan in plans.items()
        if plan.outcome is not None
    }
    cycle = _Cycle(platform, progress, accept_errors)
    for members in packed((plan.topic, plan.rows) for plan in plans.values() if plan.outcome is None):
        results.update(cycle.run_bin([plans[topic] for topic in members]))
    return results


class _Cycle:
    """What the bins of one cycle share."""

    def __init__(self, platform: Platform, progress: Progress, accept_errors: bool) -> None:
        self.platform, self.progress, self.accept_errors = platform, progress, accept_errors
        self.cycle_id = f"cycle-{platform.clock():%Y%m%dT%H%M%S}"

    def run_bin(self, plans: Sequence[TopicPlan]) -> dict[str, TopicResult]:
        """The topics of a bin under their leases, both layers, then their records."""
        results: dict[str, TopicResult] = {}
        with ExitStack() as leases:
            jobs = []
            for plan in plans:
                try:
                    job = self._job(plan, leases.enter_context(hold_topic(self.platform, plan.topic)))
                except LeaseHeldError as taken:
                    results[plan.topic] = TopicResult(plan.topic, Outcome.LOCKED, str(taken))
                    continue
                results[plan.topic] = job.result
                if job.result.outcome != Outcome.PAUSED:
                    jobs.append(job)
            self._each(jobs, self._complete_begun)
            self._run_layer(STANDARDIZED, [job for job in jobs if job.plan.standardize])
            self._run_layer(CURATED, [job for job in jobs if job.plan.curate])
            self._discard_versions(jobs)
            self._each([job for job in jobs if job.result.layers], lambda job: job.held.check())
            self._record(jobs)
            self._fold(jobs)
        return results

    def _job(self, plan: TopicPlan, held: HeldTopic) -> Job:
        """A topic under its lease. Since it was planned an operation may have begun, or the topic been changed."""
        unfinished, topic = unfinished_operation(self.platform, plan.topic), find_topic(self.platform, plan.topic)
        if unfinished or topic.status == PAUSED:
            reason = unfinished.sentence() if unfinished else topic.reason
            return Job(plan, held, TopicResult(plan.topic, Outcome.PAUSED, reason))
        schema = self.platform.schemas.active(plan.topic)
        return Job(replace(plan, schema=schema), held, TopicResult(plan.topic, Outcome.NO_NEW_DATA))

    def _record(self, jobs: Sequence[Job]) -> None:
        """Write what was done; then a topic of which one layer was held back says so."""
        ours = [job for job in jobs if not isinstance(job.result.failure, LeaseLostError)]
        try:
            record(self.platform, self.cycle_id, [(job.held, job.result.layers) for job in ours])
        except Exception as failure:  # noqa: BLE001 - the batches are in; the next cycle completes their records
            reason = self.platform.explain(failure)
            for job in jobs:
                if job.result.layers:
                    job.fail(failure, reason)
        for job in jobs:
            if job.plan.held_back and job.result.outcome in _GOOD:
                job.result.outcome, job.result.reason = Outcome.PRIOR_FAILED, job.plan.held_back

    def _fold(self, jobs: Sequence[Job]) -> None:
        """Fold tables of many small files, as long as their topics are still ours."""
        failed = fold_tables(self.platform, [(job.held, job.folds) for job in jobs if job.folds and not job.failed])
        for job in jobs:
            job.result.warnings += failed.get(job.plan.topic, [])

    def _discard(self, prepared: Prepared) -> None:
        """Remove the files of a batch of which no commit was tried; its versions are removed with those of others."""
        with suppress(LeanOpsError):
            self.platform.engine().discard(prepared.target, replace(prepared.written, superseded=()))

    def _discard_versions(self, jobs: Sequence[Job]) -> None:
        """Remove what was noted for Curated alone."""
        for job in jobs:
            if job.standardized and job.standardized.written.superseded:
                noted = Written(superseded=job.standardized.written.superseded)
                self.platform.engine().discard(job.standardized.target, noted)

    def _complete_begun(self, job: Job) -> None:
        complete_begun(job.held, self.cycle_id, job.plan.schema)

    def _run_layer(self, layer: str, jobs: Sequence[Job]) -> None:
        """Write the files of every topic, all error rows in one append, then commit every topic."""
        working = [job for job in jobs if not job.failed]
        begin, write = (
            (self._begin_standardize, self._write_standardized)
            if layer == STANDARDIZED
            else (self._begin_curate, self._write_curated)
        )
        for job in working:
            job.begun, job.prepared, job.is_handed_over = None, None, False
        self._each(working, begin, layer)
        begun = [job for job in working if job.begun is not None and not job.failed]
        if not begun:
            return
        try:
            self.platform.catalog.create(self._errors_of(layer), ERRORS)
            write(begun)
            # A topic whose lease was lost meanwhile is left alone, and does not stop the others.
            self._each([job for job in begun if not job.failed], lambda job: job.held.check(), layer)
            self._write_errors(layer, [job for job in begun if not job.failed])
        except Exception as failure:  # noqa: BLE001 - error rows come first: without them nothing is committed
            for job in begun:
                if not job.failed:
                    self._fail(job, layer, failure)
        self._each([job for job in begun if not job.failed], lambda job: self._commit(job, layer), layer)
        for job in begun:
            if job.prepared and not job.is_handed_over:
                self._discard(job.prepared)

    def _begin_standardize(self, job: Job) -> None:
        job.started = time.monotonic()
        self.progress(job.plan.topic, "standardize")
        job.begun = standardize.begin_next(job.held, job.plan.schema)

    def _begin_curate(self, job: Job) -> None:
        schema = job.plan.schema
        assert schema is not None
        job.started = time.monotonic()
        self.progress(job.plan.topic, "curate")
        if curate.source_moved(job.held, schema):
            self._recurate(job, schema)
            return
        job.begun = curate.begin_next(job.held, schema)

    def _write_standardized(self, jobs: Sequence[Job]) -> None:
        """Have the files of all batches written; where a table lacked columns, again when it has them."""
        # A large batch may show its columns twice: a sample of it first, then all of it.
        for _ in range(3):
            lacking = [job for job in jobs if job.prepared is None and not job.failed]
            if lacking:
                self._ask(STANDARDIZED, lacking)

    def _write_curated(self, jobs: Sequence[Job]) -> None:
        self._ask(CURATED, jobs)

    def _ask(self, layer: str, jobs: Sequence[Job]) -> None:
        """Have the engine do the work of these topics, all at once."""
        self._each(jobs, self._describe, layer)
        ours = [job for job in jobs if not job.failed]
        works: list[Any] = [job.work for job in ours]
        try:
            engine = self.platform.engine()
            answers = engine.standardize(works) if layer == STANDARDIZED else engine.curate(works)
        except Exception as failure:  # noqa: BLE001 - an engine that is gone fails those who asked it, not all of the bin
            answers = [failure] * len(ours)
        for job, answer in zip(ours, answers, strict=True):
            job.answer = answer
        self._each(ours, self._take, layer)

    def _describe(self, job: Job) -> None:
        begun = job.begun
        if isinstance(begun, standardize.StandardizeBatch):
            job.work = standardize.work_of(self.platform, begun, is_curated_next=job.plan.curate)
        else:
            job.work = curate.work_of(self.platform, begun, standardized=job.standardized)

    def _take(self, job: Job) -> None:
        """What the engine answered for a topic."""
        begun, work, answer = job.begun, job.work, job.answer
        if isinstance(answer, Exception):
            raise answer
        if answer.lacks_columns:
            added = standardize.added_columns(work, answer)
            job.begun = replace(begun, target=alter(job.held, begun.target, added))
            return
        try:
            if isinstance(begun, curate.CurateBatch):
                job.prepared = curate.prepared(self.platform, begun, work, answer, accept_errors=self.accept_errors)
            else:
                job.prepared = job.standardized = standardize.prepared(self.platform, begun, work, answer)
        except Exception:
            self.platform.engine().discard(work.target, answer)
            raise

    def _recurate(self, job: Job, schema: Schema) -> None:
        """Rebuild Curated if Standardized is no longer the table it was built from."""
        abandon(job.held, CURATED, self.platform.rules.databases.curated_table(schema.table_name))
        platform = replace(self.platform, actor=Actor(f"cycle by {self.platform.owner}", "cycle"))
        rebuild_held(replace(job.held, platform=platform), schema, scope=Scope.CURATED, accept=Accept.GONE)
        job.result.outcome, job.result.reason = Outcome.GAP, "Standardized had moved, so Curated was rebuilt"

    def _errors_of(self, layer: str) -> str:
        databases = self.platform.rules.databases
        return databases.parse_errors if layer == STANDARDIZED else databases.errors

    def _write_errors(self, layer: str, jobs: Sequence[Job]) -> None:
        """One append for all topics of the bin; a row that is there already is not written again."""
        with_errors = [job for job in jobs if job.prepared and job.prepared.written.errors]
        if not with_errors:
            return
        written = {job.plan.topic: job.prepared.written for job in with_errors if job.prepared}
        try:
            with self.platform.durable("errors"):
                late = self.platform.engine().add_errors(self._errors_of(layer), written)
        except Exception as failure:  # noqa: BLE001 - error rows come first: a topic without its own is not committed
            for job in with_errors:
                self._fail(job, layer, failure)
            return
        finally:
            # They are in the table, or removed.
            for job in with_errors:
                assert job.prepared is not None
                job.prepared = replace(job.prepared, written=replace(job.prepared.written, errors=()))
        for job in with_errors:
            if job.plan.topic in late:
                self._fail(job, layer, LateErrorsError(job.plan.topic, self._errors_of(layer)))

    def _commit(self, job: Job, layer: str) -> None:
        prepared = job.prepared
        if prepared is None:
            raise UnbalancedBatchError(f"{job.plan.topic}: its table still lacks columns that were added")
        self.progress(job.plan.topic, f"commit {layer}")
        if layer == STANDARDIZED:
            note_kinds(self.platform, job.plan.topic, prepared.batch.batch_id, prepared.written.kinds)
        job.held.check()
        job.is_handed_over = True
        snapshot = commit(job.held, self.platform.engine(), prepared)
        if prepared.written.many_files:
            target, summary = replace(prepared.target, base=snapshot.snapshot_id), {**prepared.summary, KIND: FOLD}
            job.folds.append(Fold(target, job.work.key, summary))
        forget_failures(self.platform, job.plan.topic, layer)
        done = job.result.layers[layer] = _layer_result(prepared, snapshot, time.monotonic() - job.started)
        job.result.warnings += batch_warnings(
            job.plan.topic,
            layer,
            done.counts,
            alert=(job.plan.schema.policies if job.plan.schema else Policies()).cde_error_rate_alert,
            share=self.platform.rules.pipeline.warning_share,
        )
        job.result.outcome = _outcome(job.plan, prepared.batch, layer, job.result.outcome)

    def _each(self, jobs: Sequence[Job], work: Callable[[Job], None], layer: str | None = None) -> None:
        """Do the work for every job, several at a time; a failure is that topic's alone."""

        def guarded(job: Job) -> None:
            try:
                work(job)
            except Exception as failure:  # noqa: BLE001 - a topic that fails does not stop its bin
                self._fail(job, layer or STANDARDIZED, failure)

        if len(jobs) == 1:
            guarded(jobs[0])
            return
        with ThreadPoolExecutor(self.platform.rules.pipeline.workers, thread_name_prefix="topic") as pool:
            list(pool.map(guarded, jobs))

    def _fail(self, job: Job, layer: str, failure: Exception) -> None:
        job.fail(failure, self.platform.explain(failure))
        if isinstance(failure, CommitRefusedError | LeaseLostError):
            # Another writer was first, or has the topic now, which is not its fault: the next cycle plans it again.
            return
        # The state store may be what failed; the outcome says so.
        with suppress(LeanOpsError):
            record_failure(self.platform, job.plan.topic, layer, job.result.reason or "")


def _layer_result(prepared: Prepared, snapshot: Snapshot, seconds: float) -> LayerResult:
    return LayerResult(prepared.batch, asdict(prepared.counts), snapshot, seconds)


def _outcome(plan: TopicPlan, batch: Batch, layer: str, before: Outcome) -> Outcome:
    if batch.is_gap or before == Outcome.GAP:
        return Outcome.GAP
    if layer == CURATED:
        return Outcome.DONE
    return Outcome.DONE if plan.schema else Outcome.STANDARDIZED_ONLY
