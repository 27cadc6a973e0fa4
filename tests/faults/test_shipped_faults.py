"""The faults of the code that ships fit it, and the page of them is of these faults."""

import pytest
from faults.shipped_fault import ShippedFault
from faults.shipped_faults import SHIPPED_FAULTS
from faults.shipped_table import COLUMNS, HEAD, PAGE, page, trial

HANDFUL = ("end-leaks", "no-turns", "line-unsorted", "lane-free-not-charged")


@pytest.mark.parametrize("fault", SHIPPED_FAULTS, ids=lambda fault: fault.name)
def test_the_fault_fits_the_code(fault: ShippedFault) -> None:
    compile(fault.source(), fault.file, "exec")


def test_the_page_has_these_faults_and_no_others() -> None:
    page = PAGE.read_text()
    assert page.startswith(HEAD)
    rows = page.partition(COLUMNS)[2].splitlines()
    named = [(cells[0].removeprefix("| "), cells[1]) for cells in (r.split(" | ") for r in rows)]
    assert named == [(fault.name, fault.story) for fault in SHIPPED_FAULTS]
    assert all("`" in line.split(" | ", 3)[3] for line in rows), "one survives all three rings"
    assert len({fault.name for fault in SHIPPED_FAULTS}) == len(SHIPPED_FAULTS) >= 40


@pytest.mark.parametrize("name", HANDFUL)
def test_the_page_says_what_the_first_ring_says_of_a_copy_with_the_fault(name: str) -> None:
    fault = next(fault for fault in SHIPPED_FAULTS if fault.name == name)
    (line,) = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| {name} |")]
    said = trial(fault, "1")["1"]
    assert said is not None
    assert line.split(" | ")[3] == f"`{said}`"


@pytest.mark.deep
def test_the_page_is_what_its_command_makes() -> None:
    assert PAGE.read_text() == page()
