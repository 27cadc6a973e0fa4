"""The counterexample page in a real browser: steps by keys and buttons, changes marked."""

from pathlib import Path

import pytest
from support.checked_samples import violated_checks
from support.report_samples import page_data

from batchproof.sched.report.counterexample_page import counterexample_page

PAGE = counterexample_page(violated_checks())
TRACE = next(trace for trace in page_data(PAGE) if trace["property"] == "nobody-done")
LAST = len(TRACE["steps"]) - 1


@pytest.fixture(scope="module")
def page_file(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("check") / "check.html"
    file.write_text(PAGE)
    return file


def state(place: int) -> dict[str, str]:
    return dict(TRACE["steps"][place]["state"])


def marked(page) -> dict[str, str]:
    """Return the rows of the step's table that are marked as changed, with the text after it."""
    rows = page.locator("#step tbody tr:not(.summary):has(td.changed)")
    return {
        row.locator("th").inner_text(): row.locator("td.changed")
        .inner_text()
        .removesuffix("(changed)")
        .strip()
        for row in rows.all()
    }


def differences(place: int) -> dict[str, str]:
    before, after = state(place - 1), state(place)
    return {
        name: after.get(name, "–")
        for name in before.keys() | after.keys()
        if before.get(name) != after.get(name)
    }


def test_it_opens_on_the_step_that_breaks_the_claim(opened, page_file: Path) -> None:
    with opened(page_file) as page:
        assert page.locator("#claim").inner_text() == TRACE["claim"]
        assert page.locator("#position").inner_text() == f"Step {LAST} of {LAST}"
        assert page.locator("#next").is_disabled()
        assert page.locator("h1").inner_text() == "2 verdicts of 5: violated"


def test_keys_and_buttons_walk_through_and_changes_are_marked(opened, page_file: Path) -> None:
    with opened(page_file) as page:
        page.keyboard.press("Home")
        assert marked(page) == {}
        for place in range(1, LAST + 1):
            page.keyboard.press("ArrowRight")
            assert page.locator("#position").inner_text() == f"Step {place} of {LAST}"
            assert marked(page) == differences(place)
        page.get_by_role("button", name="← Previous").click()
        assert marked(page) == differences(LAST - 1)
        page.locator("#steps thead").get_by_role("button").nth(1).click()
        assert page.locator("#position").inner_text() == f"Step 1 of {LAST}"


def test_all_steps_stand_side_by_side(opened, page_file: Path) -> None:
    with opened(page_file) as page:
        assert page.locator("#steps thead th").count() == LAST + 2
        page.locator("#only-changed").uncheck()
        names = page.locator("#steps tbody tr:not(.summary) th").all_inner_texts()
        assert set(names) == {name for place in range(LAST + 1) for name in state(place)}
        changes = sum(len(differences(place)) for place in range(1, LAST + 1))
        assert page.locator("#steps tr:not(.summary) td.changed").count() == changes


def test_another_run_is_shown_on_request(opened, page_file: Path) -> None:
    with opened(page_file) as page:
        page.locator("#traces").get_by_role("button", name="never-busy").click()
        assert "never-busy is violated" in page.locator("#subject").inner_text()
        assert page.locator("button[aria-pressed=true]").count() == 2  # above, and in the verdicts


@pytest.mark.parametrize(("theme", "width"), [("light", 1400), ("dark", 420)])
def test_it_is_readable_and_accessible(
    opened, page_file: Path, accessible, screenshots: Path, theme: str, width: int
) -> None:
    with opened(page_file, theme=theme, width=width) as page:
        page.screenshot(path=screenshots / f"counterexample-{theme}-{width}.png", full_page=True)
        accessible(page)
