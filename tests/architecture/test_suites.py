"""No test is left out: every one lies in a suite that `make test` runs."""

import re

from tests.support.places import ROOT


def test_every_test_lies_in_a_suite_that_runs() -> None:
    declared = re.search(r"^SUITES := (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert declared is not None
    suites = set(declared.group(1).split())
    tests = [path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")]
    assert [str(path) for path in tests if path.parts[0] not in suites] == []
