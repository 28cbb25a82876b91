"""A minute of events while every worker is killed again and again: not one is lost or doubled."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

LEANOPS = Path(sys.executable).parent / "leanops"
PATIENCE_S = 900


@pytest.mark.slow
def test_a_minute_of_events_with_kills_ends_verified_and_leaves_no_process(tmp_path: Path) -> None:
    home = tmp_path / "home"
    words = ["--for", "60s", "--rate", "500", "--kills", "10s", "--topics", "2", "--home", home]
    ran = subprocess.run(
        [LEANOPS, "emulate", "soak", *words],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE_S,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    killed = re.search(r"^([0-9]+) kills: cycles ([0-9]+), delivery ([0-9]+), processor ([0-9]+)$", ran.stdout, re.M)
    assert killed, ran.stdout
    assert int(killed[1]) >= 3
    assert "\nverified, in " in ran.stdout
    assert not [place for place in Path("/proc").glob("[0-9]*") if is_at_work(place, home)]


def is_at_work(process: Path, home: Path) -> bool:
    """Whether a process was started for a home; what was killed and not yet collected is none."""
    try:
        is_ours = f"LEANOPS_HOME={home}\0".encode() in (process / "environ").read_bytes()
        return is_ours and "State:\tZ" not in (process / "status").read_text()
    except OSError:
        return False
