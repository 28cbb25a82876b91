"""Items in groups that one call, statement or message can hold."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def in_groups(
    items: Iterable[Item], size: Callable[[Item], int], *, most: float = float("inf"), most_bytes: int
) -> Iterator[list[Item]]:
    """The items in order, in groups of at most N items and bytes; an item over the limit comes alone."""
    group: list[Item] = []
    total = 0
    for item in items:
        length = size(item)
        if group and total + length > most_bytes:
            yield group
            group, total = [], 0
        group.append(item)
        total += length
        if len(group) == most:
            yield group
            group, total = [], 0
    if group:
        yield group


def batched(items: Sequence[Item], most: int) -> Iterator[Sequence[Item]]:
    """The items in order, `most` at a time."""
    return (items[start : start + most] for start in range(0, len(items), most))
