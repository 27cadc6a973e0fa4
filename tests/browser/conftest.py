"""A headless Chromium for the browser tests; skipped, with the reason, where there is none."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
"""So that it runs as root, and asks nobody anything by itself."""


@pytest.fixture(scope="session")
def chromium() -> Iterator[object]:
    """The browser: CHROMIUM names another than the one on the path."""
    where = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if where is None:
        pytest.skip("no chromium on the path; CHROMIUM=... names one")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=where, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def screenshots(pytestconfig) -> Path:
    """Where pictures of the pages are kept: build output, not in git."""
    folder = pytestconfig.rootpath / "build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
