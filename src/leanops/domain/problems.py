"""Problems of a schema file: what is wrong, where in the file, and how to put it right."""

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a schema file."""

    code: str
    """One of a closed list: filters and tests rely on it."""
    pointer: str
    """Where in the file, as a JSON pointer; empty is the whole file."""
    message: str
    hint: str
    """What to do about it."""

    def __str__(self) -> str:
        return f"{self.pointer or '/'}: {self.message}; {self.hint}"

    def as_json(self) -> dict[str, str]:
        """The form of error.json and of `schema lint --json`."""
        return asdict(self)
