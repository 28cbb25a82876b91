"""Whether a process still runs: certain of those of this host, and never of others."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from leanops.adapters.host.processes import HostProcesses
from leanops.adapters.host.scratch import fresh_scratch
from leanops.domain.errors import LeaseHeldError
from leanops.ports.processes import UnknownProcesses
from leanops.usecases.leases import acquire, held
from leanops.usecases.platform import Platform
from tests.support.builders import platform_in

HOLD = """
import sys
from pathlib import Path
from dataclasses import replace
from leanops.adapters.host.processes import HostProcesses
from leanops.usecases.leases import acquire
from tests.support.builders import platform_in

with platform_in(Path(sys.argv[1]), owner="laptop/other") as platform:
    acquire(replace(platform, processes=HostProcesses()), "topic/orders")
    print(HostProcesses().mark, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    with platform_in(tmp_path, owner="laptop/mine") as platform:
        yield replace(platform, processes=HostProcesses())


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that holds the lease of orders, and its mark."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield process, process.stdout.readline().strip()
        process.kill()


def test_a_lease_of_a_killed_process_ends_at_once(
    platform: Platform, holder: tuple[subprocess.Popen[str], str]
) -> None:
    process, mark = holder
    with pytest.raises(LeaseHeldError, match="laptop/other is working on it until 2026-11-15 08:05:00 UTC"):
        acquire(platform, "topic/orders")
    process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert platform.processes.has_ended(mark), "dead, though its parent has not asked for its end yet"
    process.wait()
    assert platform.processes.has_ended(mark)
    assert acquire(platform, "topic/orders").generation == 2


def test_a_stopped_process_keeps_its_lease(platform: Platform, holder: tuple[subprocess.Popen[str], str]) -> None:
    process, mark = holder
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    assert not platform.processes.has_ended(mark)
    with pytest.raises(LeaseHeldError), held(platform, "topic/orders"):
        pytest.fail("it was given twice")


def test_a_number_that_another_process_has_by_now_belongs_to_a_dead_one(platform: Platform) -> None:
    processes = HostProcesses()
    host, number, start = processes.mark.split("-")
    assert not processes.has_ended(processes.mark)
    assert processes.has_ended(f"{host}-{number}-{int(start) - 1}")


def test_a_process_that_may_be_elsewhere_is_waited_for() -> None:
    processes = HostProcesses()
    host, _, start = processes.mark.split("-")
    never = 2**22 + 1
    assert processes.has_ended(f"{host}-{never}-{start}")
    for mark in (f"0123456789abcdef-{never}-{start}", f"{host}-x-{start}", f"{host}-{never}", "", "laptop", "-1-"):
        assert not processes.has_ended(mark)


def test_a_container_of_the_same_name_is_another_host(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = HostProcesses().mark
    monkeypatch.setattr(Path, "readlink", lambda _path: Path("pid:[4026599999]"))
    other = HostProcesses()
    assert other.mark.split("-")[0] != mine.split("-")[0]
    assert not other.has_ended(mine.rpartition("-")[0] + "-1")


def test_a_host_without_proc_marks_nothing_and_judges_nothing(tmp_path: Path) -> None:
    mine = HostProcesses().mark
    nowhere = HostProcesses(proc=tmp_path)
    assert nowhere.mark == ""
    assert not nowhere.has_ended(mine)


def test_a_lease_without_a_mark_ends_by_its_time_alone(platform: Platform, tmp_path: Path) -> None:
    with platform_in(tmp_path, owner="elsewhere/7") as other:
        acquire(other, "topic/orders")
    with pytest.raises(LeaseHeldError, match="elsewhere/7"):
        acquire(platform, "topic/orders")


def test_scratch_of_a_killed_process_is_removed_and_that_of_a_living_one_kept(
    tmp_path: Path, holder: tuple[subprocess.Popen[str], str]
) -> None:
    process, mark = holder
    folder, processes = tmp_path / "scratch", HostProcesses()
    for name in (mark, "of-nobody-known", "duckdb"):
        (folder / name / "blockmgr").mkdir(parents=True)
    assert fresh_scratch(folder, processes) == folder / processes.mark
    assert {path.name for path in folder.iterdir()} == {mark, processes.mark, "of-nobody-known", "duckdb"}
    process.kill()
    process.wait()
    fresh_scratch(folder, processes)
    assert {path.name for path in folder.iterdir()} == {processes.mark, "of-nobody-known", "duckdb"}
    assert fresh_scratch(folder, UnknownProcesses()) == folder, "without marks everybody shares one"
