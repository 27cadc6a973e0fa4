"""All the faults of the code that ships."""

from faults.shipped_core_faults import CORE
from faults.shipped_other_faults import AROUND
from faults.shipped_request_faults import ASKED_FOR

SHIPPED_FAULTS = (*CORE, *AROUND, *ASKED_FOR)
