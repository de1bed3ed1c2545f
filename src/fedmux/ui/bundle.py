"""Vega for the pages. Making it takes seconds and stops all threads: a process of its own does it."""

import subprocess
import sys
from importlib.metadata import version
from threading import Thread

MAKE = "import sys, vl_convert; sys.stdout.write(vl_convert.javascript_bundle())"
VERSION = version("vl-convert-python")


class Bundle:
    """The script, once it is there."""

    def __init__(self) -> None:
        self.script: bytes | None = None
        self.failed = False
        self._process: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        """Begin to make it."""
        self._process = subprocess.Popen([sys.executable, "-c", MAKE], stdout=subprocess.PIPE)
        Thread(target=self._collect, args=[self._process], daemon=True).start()

    def close(self) -> None:
        """Stop building it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _collect(self, process: "subprocess.Popen[bytes]") -> None:
        script, _ = process.communicate()
        if process.returncode == 0:
            self.script = script
        else:
            self.failed = True
