"""Every seeded fault is noticed by the property named, as shortly as the page of them says."""

import pytest
from faults.fault import Fault
from faults.seeded import FAULTS
from faults.table import HEAD, PAGE, row

from batchproof.invariants.catalog import CATALOG, RECOVERABLE
from batchproof.spec.bounds import SIZES


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_property_notices_the_fault(fault: Fault) -> None:
    assert row(fault) in PAGE.read_text(), (
        "the page is stale: PYTHONPATH=tests python -m faults.table"
    )


def test_the_page_has_these_faults_and_no_others() -> None:
    page = PAGE.read_text()
    assert page.startswith(HEAD)
    names = [line.split(" | ")[0].removeprefix("| ") for line in page[len(HEAD) :].splitlines()]
    assert names == [fault.name for fault in FAULTS]


def test_there_are_enough_and_each_is_told_from_the_others() -> None:
    assert len(FAULTS) >= 25
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert {fault.bound for fault in FAULTS} <= set(SIZES)


def test_every_property_has_its_fault() -> None:
    claims = {claim.name for claim in (*CATALOG, *RECOVERABLE)}
    assert claims == {fault.claim for fault in FAULTS}
