"""Folders stay small, and a feature has the same name in every layer."""

import re

import pytest

from tests.support.places import ROOT

MOST_FILES = 12
LAYERS = {
    "usecases": ROOT / "src/leanops/usecases",
    "cli": ROOT / "src/leanops/entrypoints/cli",
    "tests": ROOT / "tests/unit",
}
FEATURES = {
    "topics": {"usecases", "cli", "tests"},
    "bridge": {"usecases", "tests"},
    "ingest": {"usecases", "cli", "tests"},
    "dlq": {"usecases", "tests"},
    "schemas": {"usecases", "cli", "tests"},
    "pipeline": {"usecases", "tests"},
    "operations": {"usecases", "cli", "tests"},
    "cycle": {"usecases", "tests"},
}
"""The words of the README's picture from left to right, and the layers in which each is a folder."""


def test_no_folder_has_more_modules_than_its_limit() -> None:
    folders = {path.parent for top in ("src", "tests", "bench") for path in (ROOT / top).rglob("*.py")}
    modules = {
        str(folder.relative_to(ROOT)): [path.name for path in folder.glob("*.py") if path.name != "__init__.py"]
        for folder in folders
    }
    assert {folder: len(names) for folder, names in modules.items() if len(names) > MOST_FILES} == {}


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_is_a_folder_in_the_layers_it_claims(feature: str) -> None:
    assert {layer for layer, folder in LAYERS.items() if (folder / feature).is_dir()} == FEATURES[feature]


def test_every_folder_of_the_use_cases_is_a_feature() -> None:
    folders = {path.parent.name for path in LAYERS["usecases"].glob("*/__init__.py")}
    assert folders == FEATURES.keys()


def test_every_place_that_contributing_names_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition("| I want to … | place |")[2].partition("\n\n")[0]
    places = re.findall(r"\| `([^`]+)`", table)
    assert len(places) == 12
    assert [place for place in places if not (ROOT / place).exists()] == []
