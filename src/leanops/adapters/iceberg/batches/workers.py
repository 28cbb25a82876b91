"""What Spark starts to have Python workers: PySpark's own daemon, prepared so that it costs little to start a task.

PySpark's workers read the contents of its zip files anew for every task, once a package that was imported from there,
and look through all of their objects after it: together 150 ms on two cores, more than a small batch takes.
"""

import gc
import sys
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path

_PACKAGES = ("pyspark", "py4j")


def without_archives(path: list[str]) -> list[str]:
    """A module path without the archives inside PySpark's own folder, if all that is in them is there in folders."""
    folders = [entry for entry in path if not entry.endswith((".zip", ".jar"))]
    found = [PathFinder.find_spec(package, folders) for package in _PACKAGES]
    homes = [Path(spec.origin).resolve().parent for spec in found if spec and spec.origin]
    if len(homes) < len(_PACKAGES):
        return path
    return [entry for entry in path if entry in folders or homes[0] not in Path(entry).resolve().parents]


if __name__ == "__main__":
    sys.path[:] = without_archives(sys.path)
    sys.path_importer_cache.clear()
    # All workers are forks of this process, and have what it has.
    import_module("leanops.adapters.iceberg.batches.engine")
    daemon = import_module("pyspark.daemon")
    # What is there by now stays, so nobody needs to look whether it is garbage.
    gc.freeze()
    daemon.manager()
