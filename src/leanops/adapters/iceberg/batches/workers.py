"""What Spark starts to have Python workers: PySpark's own daemon, so prepared that a small task is not in bad company.

PySpark's workers read the contents of its zip files anew for every task, once a package that was imported from there,
and look through all of their objects after it: together 150 ms on two cores, more than a small batch takes.
"""

import gc
import sys
from importlib import import_module
from importlib.machinery import PathFinder


def without_archives(path: list[str]) -> list[str]:
    """The entries of a module path that are no archives, unless PySpark is in one of them only."""
    folders = [entry for entry in path if not entry.endswith((".zip", ".jar"))]
    return folders if PathFinder.find_spec("pyspark", folders) else path


if __name__ == "__main__":
    sys.path[:] = without_archives(sys.path)
    sys.path_importer_cache.clear()
    # All workers are forks of this process, and have what it has.
    import_module("leanops.adapters.iceberg.batches.engine")
    daemon = import_module("pyspark.daemon")
    # What is there by now stays, so nobody needs to look whether it is garbage.
    gc.freeze()
    daemon.manager()
