"""A real tandemd in a directory of its own, and an RPC client for it."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import daemon_forks
import fake_shim
import grpc
from fake_shim import PATIENCE_S

from tandem._wire import tandem_pb2 as pb
from tandem._wire import tandem_pb2_grpc as pb_grpc


def until(fact, *, what):
    """Wait for something that another process does, where the test does not check the order."""
    deadline = time.monotonic() + PATIENCE_S
    while not fact():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.002)


def states_of(pid):
    """Return the states of the process's threads, as the letters of proc(5)."""
    states = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it may end after the listing
            states.add((task / "stat").read_text().rpartition(")")[2].split()[0])
    return states


class RunningDaemon:
    """One daemon process. `start` may be called again after it has ended."""

    def __init__(self, base: Path):
        self.base = base
        self.runtime = base / "rt"
        self.log = base / "log"
        self.process: daemon_forks.Daemon | subprocess.Popen | None = None
        self.shims: list[fake_shim.Shim] = []

    @property
    def attach_path(self):
        return self.runtime / "attach.sock"

    def arguments(self, *more):
        return ["--runtime-dir", str(self.runtime), *more]

    def environment(self):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("TANDEM_", "WATCHDOG"))}
        return kept | {"NOTIFY_SOCKET": str(self.base / "notify")}

    def start(self, *arguments):
        with self.made_ready():
            self.process = daemon_forks.start(
                self.arguments(*arguments), env=self.environment(), log=self.log
            )
        return self

    @contextmanager
    def made_ready(self):
        """Wait, at the end of the block, until the daemon started in it is ready."""
        (self.base / "notify").unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(str(self.base / "notify"))
            (self.base / "notify").chmod(0o666)
            notify.settimeout(PATIENCE_S)
            yield
            assert notify.recv(256).startswith(b"READY=1")

    def run(self, *arguments):
        """Run another daemon to its end."""
        return daemon_forks.run(
            self.arguments(*arguments), env=self.environment(), timeout=PATIENCE_S
        )

    @contextmanager
    def stopped(self):
        """Stop the daemon for the length of the block."""
        self.process.send_signal(signal.SIGSTOP)
        try:  # until one thread takes the signal, the others run on
            until(lambda: states_of(self.process.pid) == {"T"}, what="all its threads stand")
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def stop(self, by=signal.SIGTERM):
        if self.process is None:
            return None
        self.process.send_signal(by)
        code = self.process.wait(PATIENCE_S)
        self.process = None
        return code

    def shim(self, **asked):
        return self.connect().attach(**asked)

    def connect(self):
        shim = fake_shim.Shim(self.attach_path)
        self.shims.append(shim)
        return shim

    @contextmanager
    def client(self, *options):
        """A shim in a process of its own."""
        program = [sys.executable, fake_shim.__file__, str(self.attach_path), *options]
        with subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    @contextmanager
    def rpc(self):
        with Rpc(self.runtime) as rpc:
            yield rpc


class Rpc:
    """A login, a channel and the stubs."""

    def __init__(self, runtime: Path):
        self.login = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.login.settimeout(PATIENCE_S)
        self.login.connect(str(runtime / "login.sock"))
        token = self.login.makefile().readline().strip()
        if not token:
            self.login.close()
            raise ConnectionResetError(f"{runtime} has turned its caller away")
        self.metadata = (("authorization", f"Bearer {token}"),)
        self.channel = grpc.insecure_channel(f"unix:{runtime / 'tandemd.sock'}")
        self.job_service = pb_grpc.JobServiceStub(self.channel)
        self.gpu_service = pb_grpc.GpuServiceStub(self.channel)
        self.daemon_service = pb_grpc.DaemonServiceStub(self.channel)
        self.policy_service = pb_grpc.PolicyServiceStub(self.channel)
        self.partition_service = pb_grpc.PartitionServiceStub(self.channel)
        self.trace_service = pb_grpc.TraceServiceStub(self.channel)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()
        self.login.close()

    def jobs(self, **options):
        request = pb.ListJobsRequest(**options)
        return self.call(self.job_service.ListJobs, request).jobs

    def call(self, method, request):
        return method(request, metadata=self.metadata, timeout=PATIENCE_S)
