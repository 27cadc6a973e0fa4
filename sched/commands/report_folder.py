"""The folder that `--report DIR` writes."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from batchproof.sched.commands.output import write_text
from batchproof.sched.errors import InputError
from batchproof.sched.report.compare_report import INDEX, RESULT, comparison_page
from batchproof.sched.report.graph_formats import check_libraries
from batchproof.sched.report.run_history import RunHistory
from batchproof.sched.report.run_report import RECORDING, report_files
from batchproof.sched.run_recording import RunRecording


def make_folder(folder: str) -> None:
    """Make the folder, if need be; raise `InputError` where it cannot be, or is not to be used."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made a folder ({error.strerror})") from None
    if not os.access(folder, os.W_OK):
        raise InputError(f"{folder}: this folder cannot be written to")


def recording_in(folder: str) -> str:
    """Make the folder, if need be, and return where the run is to be recorded in it."""
    check_libraries()
    make_folder(folder)
    return str(Path(folder) / RECORDING)


def write_report(folder: str, result: Mapping[str, Any]) -> None:
    """Write the report of the run that was recorded in a folder; the page last."""
    history = RunHistory(RunRecording(str(Path(folder) / RECORDING)))
    for name, content in report_files(result, history).items():
        write_text(str(Path(folder) / name), content)


def write_comparison(folder: str, result: Mapping[str, Any]) -> None:
    """Write the report of a comparison; the page last."""
    write_text(str(Path(folder) / RESULT), json.dumps(result, indent=2) + "\n")
    write_text(str(Path(folder) / INDEX), comparison_page(result))
