"""The health of every topic and of the background parts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from leanops.domain.words import counted
from leanops.entrypoints.cli.home import opened
from leanops.entrypoints.cli.options import Json
from leanops.entrypoints.cli.output import NO_TOPICS, colored, print_json, print_table, say, to_second

if TYPE_CHECKING:
    from leanops.views.background import Background, WorkerStatus
    from leanops.views.status import TopicStatus


def status(as_json: Json = False) -> None:
    """Show every topic: rows per layer, lag, errors, balance; then the background parts and what waits before RAW."""
    with opened() as runtime:
        from leanops.views.status import status as all_topics

        topics = all_topics(runtime.sources())
        background = runtime.background()
    if as_json:
        balanced = all(topic.balance.balanced for topic in topics)
        print_json({"balanced": balanced, "topics": topics, **background.as_json()})
    elif topics:
        show(topics)
        show_background(background)
    else:
        say(NO_TOPICS)


def show(topics: "Sequence[TopicStatus]") -> None:
    """Print the topics as a table, and below it their problems."""
    columns = ("topic", "status", "schema", "RAW", "Standardized", "Curated", "parse errors", "errors", "lag")
    rows = [
        [
            topic.topic,
            topic.state,
            topic.schema_version if topic.schema_version is not None else "none",
            topic.raw_rows,
            topic.standardized_rows,
            topic.curated_rows,
            topic.open_errors["parse_errors"],
            topic.open_errors["errors"],
            topic.lag_rows if topic.lag_rows is not None else "unknown",
            to_second(topic.last_batch_at) or "never",
            _balance(topic),
        ]
        for topic in topics
    ]
    print_table((*columns, "last batch", "balance"), rows, grouped=True)
    for topic in topics:
        for complaint in topic.balance.complaints():
            say(f"{topic.topic}: OUT OF BALANCE: {complaint}", style="bold red")
        for note in topic.balance.notes:
            say(f"{topic.topic}: {note}", style="dim")
        for layer, failure in topic.failures.items():
            say(f"{topic.topic}: {layer} {failure}", style="red")
        for warning in topic.warnings:
            say(f"{topic.topic}: warning: {warning}", style="yellow")
        if topic.operation:
            say(f"{topic.topic}: {topic.operation.sentence}", style="yellow")
        if topic.reason:
            say(f"{topic.topic}: {topic.status.lower()}: {topic.reason}", style="yellow")


def show_background(background: "Background") -> None:
    """Print the background parts as a table, and the events that wait for them."""
    if background.workers:
        say("")
        rows = [
            [w.part, w.worker, to_second(w.since), to_second(w.beat), w.done, w.failed, _health(w)]
            for w in background.workers
        ]
        print_table(("part", "worker", "since", "last seen", "done", "failed", "health"), rows, grouped=True)
    waiting = {
        "in queues": background.queued,
        "in the delivery buffer": background.delivery.records + background.delivery.claimed,
        "dead letters not drained yet": background.undrained,
    }
    summary = ", ".join(f"{count:,} {place}" for place, count in waiting.items() if count)
    if background.shortage:
        say(f"intake is stopped: {background.shortage}", style="bold red")
    if summary:
        is_served = any(not worker.is_silent for worker in background.workers)
        hint = "" if is_served else "; process them with: leanops serve"
        say(f"before RAW: {summary}{hint}")
    for queue, depth in background.queues.items():
        oldest_s = background.oldest_s(queue)
        if depth.messages and oldest_s is not None:
            say(f"{queue}: {counted(depth.messages, 'message')}, the oldest sent {_ago(oldest_s)} ago")
    for queue, reason in background.stopped.items():
        say(f"{queue}: stopped by its circuit breaker: {reason}; see: leanops breaker show", style="bold red")


def _health(worker: "WorkerStatus") -> Any:
    if worker.is_silent:
        return colored("silent", "bold red")
    if worker.doing and worker.doing_since:
        doing = f"{worker.doing}, since {worker.doing_since:%H:%M:%S}"
        return colored(f"{worker.error}; {doing}" if worker.error else doing, "red" if worker.error else "green")
    return colored(worker.error, "red") if worker.error else colored("working", "green")


def _ago(seconds: int) -> str:
    """`40 s`, `12 min`, `3 h`, `2 d`."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _balance(topic: "TopicStatus") -> Any:
    if not topic.balance.balanced:
        return colored("OUT OF BALANCE", "bold red")
    return colored("balanced", "green") if topic.balance.checks else colored("nothing read", "dim")
