"""The system's Chromium, started once."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.support.engines import MissingEngineError, require

NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Chromium without a window; its sandbox refuses root."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        raise MissingEngineError("Chromium is missing: install it with apt-get install chromium")
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=arguments)
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with require(chromium) as opened:
        yield opened
