"""docs/emulation.md says what the emulation does."""

import re

from leanops.emulation.events.kinds import Kind
from tests.support.places import ROOT

PAGE = (ROOT / "docs/emulation.md").read_text(encoding="utf-8")


def table(section: str) -> list[str]:
    """The names in the first column of the section's first table."""
    found = re.search(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE, flags=re.DOTALL | re.MULTILINE)
    assert found is not None
    return re.findall(r"^\| `([^`]+)` \|", found[1], flags=re.MULTILINE)


def test_every_kind_of_event_is_in_the_table_and_nothing_else() -> None:
    assert table("What is special about an event") == list(Kind)


def test_the_phases_of_the_story_are_commands() -> None:
    assert table("The story") == ["clean", "day1", "schema", "day2", "day4", "verify"]
