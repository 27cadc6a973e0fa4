"""`batchproof serve` in a process of its own."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

WAIT_S = 60


@dataclass
class Ended:
    code: int
    out: str
    err: str

    @property
    def account(self) -> dict[str, Any]:
        return json.loads(self.out)


@dataclass
class ServeProcess:
    url: str
    whom: str
    """To whom it says that it serves."""
    process: subprocess.Popen[str]

    def end(self, signal: int | None = None) -> Ended:
        """Send it a signal, if any, and wait for its end."""
        if signal is not None:
            self.process.send_signal(signal)
        out, err = self.process.communicate(timeout=WAIT_S)
        return Ended(self.process.returncode, out, err)


@contextmanager
def serve_process(*options: str) -> Iterator[ServeProcess]:
    """Yield the running command, once it takes connections; it is killed if it outlives that."""
    command = (sys.executable, "-m", "batchproof", "serve", "--port", "0", "--json", *options)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            said = re.fullmatch(r"serving simulated to (.+) on (http://\S+)/v1\n", line)
            assert said is not None, line
            yield ServeProcess(said[2], said[1], process)
        finally:
            process.kill()
