"""The report in a real browser: readable, its plots drawn, its links alive."""

from pathlib import Path

import pytest

from batchproof.sched.cli import run_cli


@pytest.fixture(scope="module")
def report_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    assert run_cli(["run", "--requests", "300", "--report", str(folder)]) == 0
    return folder


@pytest.mark.parametrize(("theme", "width"), [("light", 1400), ("dark", 420)])
def test_it_is_readable_and_accessible(
    opened, report_folder: Path, accessible, screenshots: Path, theme: str, width: int
) -> None:
    file = report_folder / "index.html"
    with opened(file, theme=theme, width=width, ready="main") as page:
        page.screenshot(path=screenshots / f"report-{theme}-{width}.png", full_page=True)
        accessible(page)
        lines = page.locator(".plot .line").all()
        assert len(lines) > 6
        colours = {line.evaluate("one => getComputedStyle(one).stroke") for line in lines}
        assert "none" not in colours
        assert len(colours) > 6
        assert page.locator(".picture img").evaluate("image => image.naturalWidth") > 0


def test_its_timeline_opens_from_the_link(opened, report_folder: Path) -> None:
    with opened(report_folder / "timeline.html") as page:
        assert page.locator("#figures dd").first.inner_text() == "300"
    with opened(report_folder / "lifecycle.svg", ready="svg") as page:
        assert "300 requests" in page.locator("svg").get_attribute("aria-label")
