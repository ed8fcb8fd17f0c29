"""The current shim and `tandem run` read what daemons of past builds said and wrote.

The job is the one of the recordings (tests/data/golden/job.py). It fails by itself if a limit on
the page is not obeyed, or is obeyed too early.
"""

import fcntl
import mmap
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import golden
import pytest
from golden import Golden, kind_of
from shim_support import ROOT

from tandem import _attach, softgpu

PATIENCE_S = 60
MIB = 1 << 20
HELD_BYTES, MOVED_BYTES = (6 + 2 + 2) * MIB, (6 + 2) * MIB  # by job.py
GATE, PRESENCE = 1, 3  # WaitReason
LONGEST_STALE_NS = 10**10  # the longest that a shim accepts
IN_A_REQUEST = b"\xff" * 8
PROTOCOL = 1  # RefusalCode
# Offsets of version 1: in the command page,
TICK_AT, WAIT_AT, SWAP_ORDER_AT = 128, 216, 236
# in the presence page,
BUSY_AT = slice(8, 16)
# and in the state page.
UNGATED_AT, DEVICE_BYTES_AT, WAITING_AT, REASON_AT, STEPS_AT = 108, 128, 192, 196, 256
SWAPPED_AT, SWAP_DONE_AT = 328, 336


@dataclass(frozen=True, kw_only=True)
class Differs:
    """What differs between daemons."""

    swaps: bool = False
    priority: str | None = None  # as REGISTERED reports it
    told: tuple[str, ...] = ()


SLO = "slo is measured and reported, and nothing follows it: partition.tuner is off"
BUILDS = {
    "2026-11-21-69785542": Differs(),
    "2026-11-22-14f4bb5b": Differs(swaps=True),
    "2026-11-26-2ed5a2ff": Differs(swaps=True, priority="batch"),
    "2026-11-28-bb22f12b": Differs(swaps=True, priority="batch", told=(SLO,)),
}


@pytest.fixture(params=sorted({*BUILDS, *golden.names()}))
def build(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def past(build: str) -> Golden:
    return golden.load(build)


class Page:
    """A memfd with given content."""

    def __init__(self, content: bytes) -> None:
        self.fd = os.memfd_create("page", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, len(content))
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        self.bytes = mmap.mmap(self.fd, 0)
        self.bytes[:] = content

    def word(self, offset: int, kind: str = "I") -> int:
        return struct.unpack_from(f"={kind}", self.bytes, offset)[0]


class PastDaemon:
    """Says to one process what was recorded, when the test asks for it."""

    def __init__(self, folder: Path, past: Golden) -> None:
        self._past = past
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(folder / "attach.sock"))
        self._listener.listen()
        self._listener.settimeout(PATIENCE_S)
        state = past.pages["state-at-work"]
        self.command = Page(past.pages["command-at-work"])
        self.state = Page(state[:64].ljust(len(state), b"\0"))  # a daemon's header
        self.peer = Page(past.pages["presence-at-work"])

    def show(self, when: str, *, order: int = 0) -> None:
        """Show the command page as it was then, with a live heartbeat and nobody in line."""
        page = bytearray(self._past.pages[f"command-{when}"])
        struct.pack_into("=QQ", page, TICK_AT, time.monotonic_ns(), LONGEST_STALE_NS)
        struct.pack_into("=Q", page, WAIT_AT, 0)
        if order:
            struct.pack_into("=I", page, SWAP_ORDER_AT, order)
        self.command.bytes[:] = bytes(page)

    def accept(self) -> bytes:
        """Accept the next process and return its first message."""
        self._connection, _ = self._listener.accept()
        self._connection.settimeout(PATIENCE_S)
        self.show("at-work")
        return self.hear()

    def hear(self) -> bytes:
        packet = self._connection.recv(4096)
        assert packet, "the process hung up"
        return packet

    def say(self, kind: str, *pages: Page) -> None:
        packet = self._past.of("daemon", kind)[0]
        socket.send_fds(self._connection, [packet], [page.fd for page in pages])

    def close(self) -> None:
        self._listener.close()
        self._connection.close()


@pytest.fixture
def daemon(tmp_path: Path, past: Golden) -> Iterator[PastDaemon]:
    listening = PastDaemon(tmp_path, past)
    yield listening
    listening.close()


@pytest.fixture
def job(shim_library: Path, tmp_path: Path, daemon: PastDaemon) -> Iterator[subprocess.Popen[str]]:
    """The job of the recordings, under the current shim."""
    device = tmp_path / "gpu"
    device.mkdir()
    env = softgpu.environment(folder=device, clock="real", profile="tiny", devices=2)
    ptx = golden.FOLDER.parent / "ptx" / "elementwise.ptx"
    with subprocess.Popen(
        [sys.executable, "-S", golden.FOLDER / "job.py", ptx],
        env=env | {"LD_PRELOAD": str(ROOT / shim_library), "TANDEM_RUNTIME_DIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


def begin_again(job: subprocess.Popen[str]) -> None:
    job.stdin.write("\n")
    job.stdin.flush()


def until(fact: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not fact():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.002)


def test_a_job_works_and_waits_as_a_daemon_of_the_past_says(
    daemon: PastDaemon, job: subprocess.Popen[str], build: str
) -> None:
    hello = daemon.accept()
    daemon.say("PRESENCE", daemon.peer)  # may come before the welcome
    daemon.say("WELCOME", daemon.command, daemon.state, daemon.peer)
    mapped, *later = (daemon.hear() for _ in range(3))
    assert (kind_of(hello), kind_of(mapped)) == ("HELLO", "MAPPED")
    assert {kind_of(packet) for packet in later} == {"SHARED", "USES"}, "what WELCOME lists"
    assert job.stdout.readline() == "done\n", job.stderr.read()
    assert daemon.state.word(DEVICE_BYTES_AT, "Q") == HELD_BYTES
    assert daemon.state.word(STEPS_AT, "Q") == 3

    daemon.show("at-work")
    daemon.peer.bytes[BUSY_AT] = IN_A_REQUEST
    begin_again(job)
    until(lambda: waits(daemon) == (1, PRESENCE), "it lets a busy peer go first")
    daemon.say("PRESENCE_GONE")
    assert job.stdout.readline() == "done\n"

    daemon.show("paused")
    begin_again(job)
    until(lambda: waits(daemon) == (1, GATE), "it waits at the gate")
    if BUILDS[build].swaps:
        move_out(daemon)
    daemon.show("at-work", order=2)
    if BUILDS[build].swaps:
        daemon.say("SWAP")
    assert job.stdout.readline() == "done\n"
    assert daemon.state.word(STEPS_AT, "Q") == 5
    assert daemon.state.word(UNGATED_AT) == 0, "nothing of this was for want of a daemon"


def waits(daemon: PastDaemon) -> tuple[int, int]:
    return daemon.state.word(WAITING_AT), daemon.state.word(REASON_AT)


def move_out(daemon: PastDaemon) -> None:
    """Move its memory out, as the command page of the pause orders."""
    daemon.say("HOST_POOL", Page(bytes(MOVED_BYTES)))
    daemon.say("SWAP")
    until(lambda: daemon.state.word(SWAP_DONE_AT) == 1, "its memory is moved")
    assert daemon.state.word(SWAP_DONE_AT + 4) == 1, "reached"
    assert daemon.state.word(SWAPPED_AT, "Q") == MOVED_BYTES


def test_a_process_that_a_daemon_of_the_past_refuses_says_why(
    daemon: PastDaemon, job: subprocess.Popen[str]
) -> None:
    daemon.accept()
    daemon.say("REFUSED")

    assert job.stderr.readline() == (
        "tandem: running unshared, the daemon refuses this process: "
        "the shim has layouts 900 to 901, the daemon has 1\n"
    )


def test_tandem_run_understands_what_a_daemon_of_the_past_answers(past: Golden, build: str) -> None:
    (registered,) = past.of("daemon", "REGISTERED")
    (refused,) = past.of("daemon", "REFUSED")
    (hello,) = past.of("job", "HELLO")

    assert _attach.decode_answer(registered) == _attach.Registered(
        job_id=struct.unpack_from("=Q", hello, 32)[0],  # the job has it from its environment
        priority=BUILDS[build].priority,
        told=BUILDS[build].told,
    )
    assert _attach.decode_answer(refused) == _attach.Refused(
        code=PROTOCOL, reason="the shim has layouts 900 to 901, the daemon has 1"
    )
