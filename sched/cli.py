"""The command line: which commands there are, and how every failure ends in one line.

Exit codes: 0 all well; 1 a property is violated; 2 the command or its input is
wrong; 3 incomplete or interrupted.
"""

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Final

from cyclopts import App, CycloptsError

from batchproof import __version__
from batchproof.sched.errors import BatchproofError
from batchproof.sched.monitor_facts import ViolationError

COMMANDS: Final = {
    "run": "Schedule a trace, or a generated workload, to its end, and say how it went.",
    "check": "Decide every property of a model exhaustively, and show a counterexample.",
    "compare": "Run policies side by side, and show what each is worth.",
    "cover": "Lead the scheduler along every transition at a bound, in a few long walks.",
    "graph": "Draw or export the life of a request, or the states of a model.",
    "timeline": "Show a recorded run as a page to explore, or as a trace for Perfetto.",
    "serve": "Serve an OpenAI-compatible endpoint over the scheduler, until told to stop.",
    "bench": "Measure what things cost on this machine, now.",
    "replay": "Run a recording of a run again, and say whether it goes the same way.",
    "soak": "Run random workloads with failing executors and kills, and check everything.",
}
"""Each is the function of its name in the module of its name in `sched/commands`, imported when
it is called for."""

OK, VIOLATED, WRONG, INCOMPLETE = 0, 1, 2, 3
DEBUG_VARIABLE: Final = "BATCHPROOF_DEBUG"


def make_app() -> App:
    """Return the command line."""
    app = App(
        name="batchproof",
        help="A continuous-batching scheduler for LLM inference that is verified.",
        version=__version__,
        result_action="return_value",
        exit_on_error=False,
        print_error=False,
        suppress_keyboard_interrupt=False,
    )
    for name, summary in COMMANDS.items():
        app.command(f"batchproof.sched.commands.{name}:{name}", name=name, help=summary)
    return app


def run_cli(argv: Sequence[str]) -> int:
    """Run one command; return its exit code. No error leaves as a traceback."""
    try:
        code = make_app()(list(argv))
        sys.stdout.flush()
    except ViolationError as error:
        return _fail(str(error), VIOLATED)
    except (BatchproofError, CycloptsError) as error:
        return _fail(str(error), WRONG)
    except KeyboardInterrupt:
        return _fail("interrupted", INCOMPLETE)
    except BrokenPipeError:
        # The reader has seen enough. Nothing more is to be flushed to it when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            traceback.print_exc()
        return _fail(
            f"internal error: {type(error).__name__}: {error}; please report it "
            f"({DEBUG_VARIABLE}=1 shows where)",
            INCOMPLETE,
        )
    return code if isinstance(code, int) else OK


def _fail(message: str, code: int) -> int:
    print(f"batchproof: {' '.join(message.split())}", file=sys.stderr)
    return code
