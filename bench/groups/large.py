"""Corrections into ten million rows, against the same into one million; README.md says what is measured."""

from pathlib import Path

from bench.data import aging, raw_table
from bench.hub import Hub
from bench.rows import Row, row, say


def measure(folder: Path, count: int) -> list[Row]:
    """Both tables are loaded, aged and corrected alike, the small one first and once more to warm up."""
    hub = Hub(folder / "large")
    corrections = raw_table(count // 20, seed=2, corrected=count // 2)
    found = [_seconds(hub, f"orders-{number}", loads, count, corrections) for number, loads in enumerate((1, 1, 10))]
    hub.runtime.close()
    return [row("50 K corrections into 10 M, both layers / into 1 M", found[2], found[1], 1.5)]


def _seconds(hub: Hub, topic: str, loads: int, count: int, corrections: object) -> float:
    hub.add(topic)
    for number in range(loads):
        # Every load has keys of its own.
        hub.land(topic, raw_table(count, seed=100 + number, first=number * count))
        hub.cycle(topic)
    hub.age(topic, aging(200, count))
    hub.land(topic, corrections)
    seconds = hub.cycle(topic)[1]
    say(f"{topic}: {loads * count:,} events, corrected in {seconds:.1f} s")
    return seconds
