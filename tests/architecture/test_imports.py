"""The layers hold, and the contracts that say so would notice if they did not."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT

LINT_IMPORTS = Path(sys.executable).parent / "lint-imports"


def lint_imports(source: Path) -> subprocess.CompletedProcess[str]:
    """Check the package under `source` against the contracts in pyproject.toml."""
    return subprocess.run(
        [LINT_IMPORTS, "--config", ROOT / "pyproject.toml", "--no-cache", "--no-logo"],
        cwd=source,
        env=os.environ | {"PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def source_copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "src"


def test_every_import_respects_the_layers() -> None:
    checked = lint_imports(ROOT / "src")
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    ("module", "statement", "contract"),
    [
        ("domain/intruder.py", "import leanops.ports", "Layers"),
        ("adapters/sql/intruder.py", "import leanops.usecases", "Layers"),
        ("usecases/intruder.py", "import leanops.settings", "Layers"),
        ("ports/intruder.py", "import leanops.transforms", "Layers"),
        ("adapters/aws/intruder.py", "import leanops.adapters.sql", "Adapters"),
        ("usecases/intruder.py", "import boto3", "No vendor"),
        ("transforms/intruder.py", "import pyiceberg.table", "No vendor"),
        ("domain/intruder.py", "import pyspark", "No Spark but"),
        ("ports/intruder.py", "import pyspark.sql", "No Spark but"),
        ("transforms/intruder.py", "import pyspark.sql", "No Spark but"),
        ("usecases/operations/intruder.py", "import pyspark.sql", "No Spark but"),
        ("entrypoints/lambdas/intruder.py", "import pyspark.sql", "No Spark within"),
        ("usecases/pipeline/intruder.py", "import leanops.usecases.operations.swap", "Features"),
        ("usecases/dlq/intruder.py", "import leanops.usecases.schemas.deploy", "Features"),
        ("domain/table/intruder.py", "import leanops.domain.payload.flatten", "Domain"),
        ("emulation/verify/intruder.py", "import leanops.emulation.play.feed", "Emulation"),
        ("emulation/report/intruder.py", "import leanops.emulation.play.homes", "Emulation"),
        ("entrypoints/cli/intruder.py", "import leanops.adapters.sql.state", "Entry points"),
    ],
)
def test_a_forbidden_import_is_noticed(source_copy: Path, module: str, statement: str, contract: str) -> None:
    intruder = source_copy / "leanops" / module
    intruder.parent.mkdir(exist_ok=True)
    (intruder.parent / "__init__.py").touch()
    intruder.write_text(f"{statement}\n")
    checked = lint_imports(source_copy)
    broken = [line for line in checked.stdout.splitlines() if line.startswith(contract) and " BROKEN" in line]
    assert checked.returncode != 0
    assert broken, checked.stdout + checked.stderr
