"""A home of its own for every test of the command line, and a way to give commands in it."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from leanops.adapters.files.folder import Folder
from leanops.entrypoints.cli.app import run
from leanops.runtimes.embedded import Embedded, create_home
from leanops.usecases.platform import Platform
from leanops.usecases.schemas.deploy import deploy_schema
from leanops.usecases.topics.registry import add_topic
from tests.support.builders import platform_in, schema_text


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Leanops = Callable[..., Ran]


@pytest.fixture
def leanops(capsys: pytest.CaptureFixture[str]) -> Leanops:
    """Runs a command in this process: `leanops("topics", "add", "orders")`."""

    def command(*words: str) -> Ran:
        capsys.readouterr()
        code = run(words)
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return command


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh home that commands find by LEANOPS_HOME."""
    made = create_home(tmp_path / "home")
    monkeypatch.setenv("LEANOPS_HOME", str(made))
    return made


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    """A platform without Spark that knows the topic orders; many tests have one of their own in its place."""
    with platform_in(tmp_path) as platform:
        add_topic(platform, "orders")
        yield platform


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Where that platform keeps its schemas."""
    return Folder(tmp_path / "schemas")


@pytest.fixture
def runtime(home: Path) -> Iterator[Embedded]:
    """The home open, with the topic orders and its schema; many tests have one of their own in its place."""
    runtime = Embedded(home)
    add_topic(runtime.platform, "orders")
    deploy_schema(runtime.platform, "orders", schema_text(), "schema.json")
    yield runtime
    runtime.close()
