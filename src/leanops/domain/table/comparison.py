"""What an operation changes for the readers of Curated, before it does."""

from dataclasses import dataclass

from leanops.domain.table.operation import Accept, Accepted, agrees


@dataclass(frozen=True)
class Comparison:
    """The new Curated beside the live one."""

    rows_before: int
    rows_after: int
    checksum_before: str
    checksum_after: str
    """Over keys and versions: equal where both tables hold the same version of the same keys."""
    failing: int
    """Live keys that leave because their newest version fails the schema; each has an error row."""
    lost: int
    """Live keys that leave, and nothing says why."""
    gone: int = 0
    """Live keys that leave because Standardized no longer has them."""
    examples: tuple[str, ...] = ()
    """Message ids of keys that leave."""

    @property
    def missing(self) -> int:
        """Live keys that leave."""
        return self.failing + self.lost + self.gone

    def refused(self, accept: Accepted) -> int:
        """How many keys would go missing that nobody agreed to."""
        if accept == Accept.FAILING:
            return self.lost + self.gone
        if accept == Accept.GONE:
            return self.failing + self.lost
        return 0 if agrees(accept, self.missing) else self.missing
