"""A machine as a package sets it up: root owns the GPU, not the daemon, and there is a helper."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from running_job import DEADLINE_S, Place, until

from tandem import softgpu
from tandem._helper import VARIABLE

DAEMON, USER, OTHER = 65534, 12345, 12346  # users: of the daemon, and of jobs


class Machine:
    """Works only as root."""

    def __init__(self, image):
        # In /tmp no program trusts a daemon of another user.
        self.folder = Path(tempfile.mkdtemp(prefix="tandem-", dir="/var/tmp"))
        self.folder.chmod(0o755)
        os.chown(self.folder, DAEMON, DAEMON)
        shutil.copy(image, self.folder / "image")
        self.place = Place(self.folder, self.folder / "image", clock="real")
        (self.folder / "gpu").chmod(0o755)
        self.helper_folder = self.folder / "helper"
        self.helper_folder.mkdir(mode=0o755)
        self.socket = self.helper_folder / "helper.sock"
        self.place.env |= {
            VARIABLE: str(self.socket),
            "TANDEM_SOFTGPU_USERS": "all",
            "TANDEM_SOFTGPU_LINGER_MS": "3600000",
            "HOME": "/nonexistent",
        }
        self.device = self.helper = None
        self.helpers = 0  # started so far

    def start(self, *options):
        """Start the GPU and the daemon."""
        ready, told = os.pipe()
        program = [softgpu.DEVICE_PROGRAM, "--ready-fd", str(told)]
        self.device = subprocess.Popen(program, env=self.place.env, pass_fds=[told])
        os.close(told)
        with os.fdopen(ready, "rb") as said:
            assert said.read(1)
        self.place.start_daemon(*options, uid=DAEMON)
        return self

    def start_helper(self, uid=DAEMON):
        """Start the helper as its socket unit would at the first request."""
        words = ["-m", "tandemd.helper", "--user", str(uid), "--socket", str(self.socket)]
        with (self.folder / "helper.log").open("a") as log:
            environment = {k: v for k, v in self.place.env.items() if k != VARIABLE}
            self.helper = subprocess.Popen(
                [sys.executable, *words], env=environment, stderr=log, cwd="/"
            )
        self.helpers += 1
        ready = "event=ready"
        until(lambda: self.said().count(ready) == self.helpers, what="the helper listens")

    def said(self):
        """Return what the helper has written to its log."""
        return (self.folder / "helper.log").read_text()

    def stop_helper(self, by=signal.SIGTERM):
        self.helper.send_signal(by)
        self.helper.wait(DEADLINE_S)

    def close(self):
        self.place.close()
        for process in (self.helper, self.device):
            if process is not None:
                process.kill()
                process.wait(DEADLINE_S)
        shutil.rmtree(self.folder, ignore_errors=True)
