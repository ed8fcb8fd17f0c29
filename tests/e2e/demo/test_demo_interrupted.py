"""Ctrl-C or SIGTERM in the middle of the demo, and what remains afterwards."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def processes_below(folder):
    """Return the pids of processes whose environment or command line names the folder."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            text = b"".join(
                Path("/proc", pid, name).read_bytes() for name in ("environ", "cmdline")
            )
        except OSError:
            continue
        if bytes(folder) in text and int(pid) != os.getpid():
            found.append(int(pid))
    return found


@pytest.mark.parametrize(
    ("option", "number", "code"),
    [
        ("--keep", signal.SIGINT, 130),
        ("--json", signal.SIGINT, 130),
        ("--json", signal.SIGTERM, 143),
    ],
)
def test_ending_the_managed_scenario_ends_every_child_and_removes_the_folder(option, number, code):
    folder = Path(tempfile.mkdtemp(prefix="tandem-"))  # pytest's own name is too long for a socket
    demo = subprocess.Popen(
        [sys.executable, "-m", "tandem.cli", "demo", "--seconds", "0.5", option],
        env=os.environ | {"TMPDIR": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for line in demo.stderr:
            if line.startswith("tandem:"):
                break
        if option == "--keep":
            assert demo.stderr.readline().startswith("runtime directory")

        demo.send_signal(number)

        _, rest = demo.communicate(timeout=30)
        assert demo.returncode == code
        assert "Traceback" not in rest
        end = time.monotonic() + 60  # the device process leaves two seconds after its last client
        while processes_below(folder):
            assert time.monotonic() < end, processes_below(folder)
            time.sleep(0.05)
        assert list(folder.iterdir()) == []
    finally:
        demo.kill()
        demo.communicate()
        shutil.rmtree(folder)
