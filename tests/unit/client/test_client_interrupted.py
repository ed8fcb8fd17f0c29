"""Ctrl-C while the command line is being imported."""

import signal
import subprocess
import sys

import pytest

# Interrupts at the first of the slow imports.
HASTY = """
import os, signal, sys

class Hasty:
    def find_spec(self, name, *_):
        if name == "click":
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Hasty())
signal.signal(signal.SIGINT, signal.{handler})
from tandem.cli import main
sys.argv[1:] = ["--version"]
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("handler", "code"), [("default_int_handler", -signal.SIGINT), ("SIG_IGN", 0)]
)
def test_it_ends_by_the_signal_without_a_word_unless_that_is_ignored(handler, code):
    program = [sys.executable, "-c", HASTY.format(handler=handler)]

    done = subprocess.run(program, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (code, "")
