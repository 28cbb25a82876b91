"""Where tasks run: on Spark, or in this process."""

import pickle
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Protocol, TypeVar

from leanops.domain.errors import EngineUnavailableError

Item = TypeVar("Item")
Result = TypeVar("Result")
Spread = Callable[[Item], Iterable[tuple[int, bytes]]]
"""What an item gives to each of the numbered parts."""
Gather = Callable[[int, Iterable[bytes]], Result]
"""What becomes of a part."""


Further = Callable[[Iterable[bytes]], Iterable[tuple[int, bytes]]]
"""What a part gives to each of the numbered parts of the next shuffle."""


class Shuffled(Protocol):
    """What items gave to parts, each part in one place."""

    def part(self, number: int) -> list[bytes]:
        """What one part was given."""

    def gather(self, function: Gather[Result], parts: Sequence[int]) -> list[Result | Exception]:
        """What becomes of these parts, in order; what fails is that part's alone."""

    def shuffle(self, further: Further, spread: Spread[Item], items: Sequence[Item], parts: int) -> "Shuffled":
        """Bring together what the parts give to other parts, and what some items give to them."""


class Runner(Protocol):
    """Runs tasks somewhere."""

    def run(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result | Exception]:
        """The function of each item, in order; what fails is that item's alone."""

    def shuffle(self, spread: Spread[Item], items: Sequence[Item], parts: int) -> Shuffled:
        """Bring together what items give to parts, numbered from 0."""

    @property
    def cores(self) -> int:
        """How many tasks run at once."""


class InProcess:
    """The Runner without Spark: one task after the other, in this process."""

    cores = 2

    def run(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result | Exception]:
        return [guarded(function, item) for item in items]

    def shuffle(self, spread: Spread[Item], items: Sequence[Item], parts: int) -> Shuffled:
        return _Here((pair for item in items for pair in spread(item)), parts)


class _Here:
    def __init__(self, pairs: Iterable[tuple[int, bytes]], parts: int) -> None:
        self._given: dict[int, list[bytes]] = defaultdict(list)
        self._parts = parts
        for part, what in pairs:
            self._given[part].append(what)

    def part(self, number: int) -> list[bytes]:
        return self._given[number]

    def gather(self, function: Gather[Result], parts: Sequence[int]) -> list[Result | Exception]:
        return [guarded(lambda part: function(part, self._given[part]), part) for part in parts]

    def shuffle(self, further: Further, spread: Spread[Item], items: Sequence[Item], parts: int) -> Shuffled:
        given = (pair for part in range(self._parts) for pair in further(self._given[part]))
        return _Here(chain(given, (pair for item in items for pair in spread(item))), parts)


def guarded(function: Callable[[Item], Result], item: Item) -> Result | Exception:
    """What a function answers, or what it raises."""
    try:
        return function(item)
    except Exception as failure:  # noqa: BLE001 - a batch that fails does not stop those beside it
        return failure


def portable(failure: Exception) -> Exception:
    """The failure if it can travel to the driver, else an error that describes it."""
    try:
        pickle.loads(pickle.dumps(failure))
    except Exception:  # noqa: BLE001 - whatever a class of exceptions does when it is pickled
        places = traceback.extract_tb(failure.__traceback__)[-3:]
        where = ", ".join(f"{place.name} in line {place.lineno} of {place.filename}" for place in places)
        return EngineUnavailableError(f"a task failed with {type(failure).__name__} ({where})")
    return failure
