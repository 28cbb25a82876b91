"""Where things are in the repository."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
MALFORMED = ROOT / "tests/malformed"
"""Schema files that are wrong, each in a way of its own."""
