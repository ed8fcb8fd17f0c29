"""The other side of a managed run: a daemon that the test drives, and what it sees."""

from __future__ import annotations

import mmap
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shim"))

from shim_daemon import HEADER_BYTES, MONOTONIC, SLOTS_OFFSET, VIRTUAL, Attached, FakeDaemon

PATIENCE_S = 20  # of real time, for a program that takes some milliseconds
HELPER_TICK_AT = HEADER_BYTES + 8  # shm::StateControl::helper_tick_ns
SLOTS_BYTES, LIVE = 256 * 64, 1  # shm::kSlotCount, shm::SlotState::kLive
# Answers the program, whose process id it gets, until that reports its end; False if it never does.
Serve = Callable[[socket.socket, int], bool]


@dataclass(kw_only=True)
class Watched:
    """What the daemon's side saw of a managed run."""

    tallies: dict[int, int] = field(default_factory=dict)  # step -> bytes the job counts as its own
    passed: list[int] = field(default_factory=list)  # calls that returned while the gate was closed
    waited: list[int] = field(default_factory=list)  # calls that waited until it opened
    slots: list[int] = field(default_factory=list)  # handles of the streams that have a slot
    records: Counter[tuple[int, int]] = field(default_factory=Counter)  # (kind, stream) -> number
    dropped: int = 0
    live_slots: int = 0
    open_segments: int = 0
    capturing: int = 0
    device_bytes: int = 0
    is_attached: bool = False
    switches: int = 0  # of streams, to another set of SMs


def conduct(
    serve: Serve, command: Sequence[str], env: Mapping[str, str], outputs: tuple[IO[str], IO[str]]
) -> str:
    """Run a program; return how it ended, or an empty text if it ended well."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        env = {**env, "PROOF_CONTROL_FD": str(theirs.fileno())}
        out, err = outputs
        child = subprocess.Popen(
            command, env=env, stdout=out, stderr=err, pass_fds=[theirs.fileno()]
        )
        theirs.close()
        ended = serve(ours, child.pid)
    return wait_for_end(child, PATIENCE_S if ended else 0)


def wait_for_end(child: subprocess.Popen[bytes], patience_s: float) -> str:
    try:
        code = child.wait(patience_s)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
        return "did not end"
    if code < 0:
        return f"ended by {signal.Signals(-code).name}"
    return f"ended with {code}" if code else ""


GROUPS, GROUP_SMS = 16, 8  # of the profile `h200`
CALLS = 3  # on average, one call in so many finds another set than the call before


def any_set(chance: random.Random) -> dict[str, int]:
    """Return some groups of SMs, or the whole device."""
    first = chance.randrange(GROUPS)
    return {
        "first": first,
        "count": chance.randint(0, GROUPS - first),
        "group_sms": GROUP_SMS,
    }


class Keeper:
    """The daemon of one managed run: closes the gate when asked, opens it when a thread waits."""

    def __init__(
        self, folder: Path, *, is_virtual: bool, sets: random.Random | None = None
    ) -> None:
        """Listen in that folder; with `sets`, change the job's set of SMs at random."""
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self._daemon = FakeDaemon(folder)
        self._is_virtual = is_virtual
        self._job: Attached | None = None
        self._others: list[Attached] = []  # the second process, whose gate stays open
        self._seen = Watched()
        self._sets = sets
        self._is_shut = False

    def watch(
        self, command: Sequence[str], env: Mapping[str, str], out: IO[str], err: IO[str]
    ) -> tuple[str, Watched]:
        try:
            end = conduct(self._serve, command, env, (out, err))
            for job in filter(None, (self._job, *self._others)):
                job.process.close()
        finally:
            self._daemon.close()
        return end, self._seen

    def _serve(self, control: socket.socket, pid: int) -> bool:
        """Answer the program until it reports its end; return False if it does not."""
        give_up = time.monotonic() + PATIENCE_S
        listener = self._daemon._listener
        while time.monotonic() < give_up:
            ready, _, _ = select.select([control, listener], [], [], 0.0002 if self._is_shut else 1)
            if listener in ready:
                self._attach()
            if control in ready:
                self._gather()
                line = control.recv(100).decode().split()
                if not line:
                    return True
                control.send(self._answer(*line))
            elif self._is_shut:
                self._open_if_somebody_waits()
        return False

    def _attach(self) -> None:
        clock = VIRTUAL if self._is_virtual else MONOTONIC
        hold = self._is_shut and not self._job
        sms = any_set(self._sets) if self._sets else None
        job = self._daemon.attach(clock=clock, hold=hold, sms=sms)
        if self._job:
            self._others.append(job)
            return
        self._job = job
        if self._is_virtual:
            job.now_ns = _clock_of(job)
        job.keep_records()
        self._seen.is_attached = True

    def _answer(self, verb: str, step: str = "") -> bytes:
        if verb == "step":
            self._move()
        elif verb == "hold":
            self._shut(shut=True)
        elif verb == "done":
            if not self._is_shut:
                self._seen.waited.append(int(step))
                return b"o"
            self._seen.passed.append(int(step))
            return b"s"
        elif verb == "tally" and self._job:
            self._seen.tallies[int(step)] = self._job.snapshot().device_bytes
        elif verb == "end":
            self._look_back()
        return b"k"

    def _gather(self) -> None:
        """Collect records. Done often, because the poller keeps them only for a recent reader."""
        for record in self._job.records() if self._job else ():
            kind, stream = record[8], int.from_bytes(record[16:24], "little")
            self._seen.records[kind, stream] += 1

    def _move(self) -> None:
        if self._job and self._sets and self._sets.randrange(CALLS) == 0:
            self._job.process.set_sms(**any_set(self._sets))

    def _shut(self, *, shut: bool) -> None:
        self._is_shut = shut
        if self._job:
            self._job.process.set_gate(hold=shut)

    def _open_if_somebody_waits(self) -> None:
        if self._job is None:
            return
        snapshot = self._job.snapshot()
        if snapshot.waiting_threads:
            self._shut(shut=False)

    def _look_back(self) -> None:
        self._shut(shut=False)
        if self._job is None:
            return
        seen = self._seen
        self._gather()
        snapshot = self._job.snapshot()
        seen.dropped = snapshot.dropped_records
        seen.live_slots = snapshot.live_slots
        seen.open_segments = snapshot.open_segments
        seen.capturing = snapshot.capturing
        seen.device_bytes = snapshot.device_bytes
        seen.slots = _live_slots(self._job)
        seen.switches = snapshot.set_switches


def _clock_of(job: Attached) -> Callable[[], int]:
    """Return a function for the job's clock, as its helper last reported it.

    Each look at the job is a heartbeat with this time. Without heartbeats the gate would go stale
    while virtual time runs, for example while a second process takes long to start.
    """
    page = mmap.mmap(job.process.fds[1], mmap.PAGESIZE, prot=mmap.PROT_READ)
    return lambda: int.from_bytes(page[HELPER_TICK_AT : HELPER_TICK_AT + 8], "little")


def _live_slots(job: Attached) -> list[int]:
    """Return the streams of the slots in use on the state page."""
    with mmap.mmap(job.process.fds[1], 0, prot=mmap.PROT_READ) as page:
        slots = struct.iter_unpack("<16xQ4xI32x", page[SLOTS_OFFSET : SLOTS_OFFSET + SLOTS_BYTES])
        return [stream for stream, state in slots if state == LIVE]
