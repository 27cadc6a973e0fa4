"""A headless Chromium for the browser tests; skipped, with the reason, where there is none."""

import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

AXE = "axe-core@4.12.0"
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


@pytest.fixture(scope="module")
def chromium() -> Iterator[object]:
    """The browser: CHROMIUM names another than the one on the path.

    Its driver keeps an event loop running while it lives, so it does not outlive its tests.
    """
    where = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if where is None:
        pytest.skip("no chromium on the path; CHROMIUM=... names one")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=where, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def build_folder(pytestconfig) -> Path:
    """Where what tests make or fetch is kept: build output, not in git."""
    return pytestconfig.rootpath / "build"


@pytest.fixture(scope="session")
def screenshots(build_folder: Path) -> Path:
    """Where pictures of the pages are kept."""
    folder = build_folder / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def npm_script(build_folder: Path) -> Callable[[str, str], Path]:
    """Fetch one file of an npm package, by the package's pinned name and the file's path in it."""

    def fetch(package: str, member: str) -> Path:
        folder = build_folder / "npm"
        script = folder / f"{package}-{Path(member).name}"
        if script.exists():
            return script
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip(f"no npm on the path: {package} cannot be had")
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder) as own:  # tests may run in several processes
            command = [npm, "pack", "--silent", package]
            packed = subprocess.run(command, cwd=own, capture_output=True, text=True, check=False)
            if packed.returncode:
                pytest.skip(f"npm pack {package}: {packed.stderr.strip()[-200:]}")
            with tarfile.open(Path(own, packed.stdout.strip().splitlines()[-1])) as content:
                file = content.extractfile(f"package/{member}")
                assert file is not None
                Path(own, "script").write_bytes(file.read())
            Path(own, "script").replace(script)
        return script

    return fetch


@pytest.fixture(scope="session")
def accessible(npm_script) -> Callable[[object], None]:
    """Let axe-core look for barriers on a page: there must be none, and nothing cut off."""
    axe = npm_script(AXE, "axe.min.js").read_text()

    def accessible(page: object) -> None:
        page.evaluate(axe)
        found = page.evaluate("axe.run()")
        assert [violation["help"] for violation in found["violations"]] == []
        assert len(found["passes"]) > 15
        root = "document.documentElement"
        assert page.evaluate(f"{root}.scrollWidth <= {root}.clientWidth")

    return accessible


@pytest.fixture
def opened(chromium) -> Callable[..., object]:
    """Open a file as a page; at the end it must have logged no error and fetched nothing else."""

    @contextmanager
    def opened(
        file: Path,
        *,
        theme: str = "light",
        width: int = 1400,
        height: int = 1000,
        ready: str = "html[data-ready-ms]",
    ) -> Iterator[object]:
        context = chromium.new_context(
            viewport={"width": width, "height": height},
            color_scheme=theme,
        )
        page = context.new_page()
        troubles: list[str] = []
        fetched: list[str] = []
        page.on("console", lambda message: troubles.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda request: fetched.append(request.url))
        page.goto(file.as_uri())
        page.wait_for_selector(ready)
        yield page
        assert troubles == []
        assert [url for url in fetched if not url.startswith("data:")] == [file.as_uri()]
        context.close()

    return opened
