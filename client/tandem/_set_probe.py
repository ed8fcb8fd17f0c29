"""Whether two processes that split the SMs of a GPU alike get sets that have no SM in common.

A program: `python -m tandem._set_probe` prints one JSON object, with how many groups there are, how
many SMs are in each, and what is wrong, if anything is. It starts two of `tandem._set_holder` as
clients of the MPS that its environment names. They are processes of their own because a sick driver
may hang or kill them. The GPU is the first that CUDA_VISIBLE_DEVICES lets them see; of a software
GPU they get a device process of their own, so that nobody's clock waits. The two end with the
program, however that ends.

The proof. Each has a green context over some of the groups, and a kernel with as many blocks as the
SMs of these have room for, each of which stays for a while. Where there was a moment at which all
blocks of both were there, and neither set has room for one more, the two sets have no SM in common.
Which SMs they are nobody has to know: drivers number them within each set (`%smid` under MPS on an
H200, driver 580). That is asked of so many divisions of the groups that every two groups were apart
in one of them, either way round. Where blocks of one wait for those of the other they did not begin
late by chance: they stay longer each time it is tried.

A program that finds no MPS runs without it and is not told, and MPS may end at any time. So its
control daemon is asked, when both have their contexts, whether they are its clients: without it the
two take turns, and blocks that were put aside are there as well, by the clock. Blocks may also wait
for those of somebody else, so that sets share SMs is an answer only where MPS has no other clients.
`TANDEM_PROBE_MPS` says where it has its pipe; where that is not set the GPU is the two's alone.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tandem import _mps
from tandem._set_holder import NO_SERVER_HINT as NO_SERVER_HINT

CONTROL = "TANDEM_PROBE_MPS"  # set by whoever knows where the control daemon is
ANSWER_S = 5.0  # of that
TIMEOUT_S = 20.0
END_S = 1.0  # of one that was killed; a sick driver may keep it
STAYS_NS = tuple(4_000_000 << i for i in range(6))  # one after the other, until one proves it
NOT_OURS = ("LD_PRELOAD", "TANDEM_JOB_ID", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
HOLDER = "tandem._set_holder"
SILENCE = "a process that was to have a set of SMs ended, or did not answer"


@dataclass(frozen=True, slots=True)
class Found:
    """What came out."""

    groups: int = 0
    group_sms: int = 0
    problem: str = ""  # empty: sets of two processes are disjoint
    is_answer: bool = True  # of the driver; else asked again it may say something else


Said = dict[str, Any]  # of one of the two: JSON


class _NotProvedError(Exception):
    """Why not."""

    def __init__(self, problem: str, *, is_answer: bool) -> None:
        super().__init__(problem)
        self.is_answer = is_answer


def main() -> None:
    """Probe."""
    # The daemon blocks its own signals. To unblock them between fork and exec would be code of ours
    # in a copy of a process with many threads.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and takes the two along
    sys.stdout.write(json.dumps(asdict(probe(os.environ))) + "\n")


def probe(environment: Mapping[str, str]) -> Found:
    """Start the two; blocks for `TIMEOUT_S` at most. Never raises."""
    own = {name: value for name, value in environment.items() if name not in NOT_OURS}
    if "CUDA_MPS_PIPE_DIRECTORY" in own:
        return _probe_in(own)
    # A software GPU that is in mode mps by itself: another one like it. Where there is a server
    # only the device that it has will do, and there may be no place to write to.
    try:
        with tempfile.TemporaryDirectory(prefix="tandem-probe-") as place:
            own |= {"TANDEM_SOFTGPU_DIR": place, "TANDEM_SOFTGPU_CLOCK": "real"}
            own |= {"TANDEM_SOFTGPU_START_CLIENTS": "0", "TANDEM_SOFTGPU_LINGER_MS": "0"}
            for name in ("TANDEM_SOFTGPU_TIMELINE", "TANDEM_SOFTGPU_FAULTS"):
                own.pop(name, None)
            return _probe_in(own)
    except OSError as error:
        return Found(problem=f"no directory for another software gpu: {error}", is_answer=False)


def as_client(
    place: Path, environment: Mapping[str, str], *, timeout_s: float
) -> dict[str, str] | str | None:
    """That of a probe under the MPS there; or why there is none now; None: no MPS answers there.

    None is started while others have work in it: servers have clients of one user, in turns. So the
    two would wait for these to go, and who comes next for the two. `timeout_s`: of each question.
    """
    control, uid = _mps.Control(place, environment=environment, timeout_s=timeout_s), os.geteuid()
    if (servers := control.servers()) is None:
        return None
    for server in servers:
        owner = server.owner
        if owner not in (None, uid) and control.clients(server) != []:
            return f"the mps that runs serves uid {owner} now"
    pipes = control.pipes_for(uid, servers)
    if not pipes:
        return f"mps has no server of uid {uid}"
    return {**environment, _mps.PIPES: str(pipes), CONTROL: str(place)}


def _probe_in(own: Mapping[str, str]) -> Found:
    holders = [
        subprocess.Popen(
            [sys.executable, "-m", HOLDER, str(number), str(os.getpid())],
            env=own,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for number in (0, 1)
    ]
    control = (
        _mps.Control(Path(at), environment=own, timeout_s=ANSWER_S)
        if (at := own.get(CONTROL))
        else None
    )
    return _judge(holders, time.monotonic() + TIMEOUT_S, control)


def _judge(
    processes: list[subprocess.Popen[str]], end_s: float, control: _mps.Control | None = None
) -> Found:
    holders = [_Holder(process, end_s) for process in processes]
    try:
        found = _prove(holders, control)
    except _NotProvedError as error:
        return Found(problem=str(error), is_answer=error.is_answer)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Found(problem=SILENCE, is_answer=False)
    else:
        _let_end(processes)
        return found
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
            for pipe in filter(None, (process.stdin, process.stdout)):
                with suppress(OSError):  # what it did not read any more
                    pipe.close()


def _let_end(processes: Sequence[subprocess.Popen[str]]) -> None:
    """By themselves: clients that are killed may cost others of their MPS something."""
    for process in processes:
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.close()
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)


class _Holder:
    """One of the two. What it says in vain ends the proof."""

    def __init__(self, process: subprocess.Popen[str], end_s: float) -> None:
        self.pid = process.pid
        self._process, self._end_s = process, end_s

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it may have said why
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def hear(self) -> Said:
        """What it says next."""
        said: Said = json.loads(self._line())
        if "problem" in said:
            raise _NotProvedError(str(said["problem"]), is_answer=bool(said["is_answer"]))
        return said

    def _line(self) -> bytes:
        """Empty: it has ended, or says nothing in time."""
        assert self._process.stdout is not None
        pipe, said = self._process.stdout.fileno(), b""
        while not said.endswith(b"\n"):
            left_s = max(0.0, self._end_s - time.monotonic())
            ready, _, _ = select.select([pipe], [], [], left_s)
            if not ready or not (piece := os.read(pipe, select.PIPE_BUF)):
                return b""
            said += piece
        return said


def _prove(holders: Sequence[_Holder], control: _mps.Control | None) -> Found:
    splits, pids = [holder.hear() for holder in holders], {holder.pid for holder in holders}

    def found_there() -> set[int]:
        return _clients(control) if control else pids

    clients = found_there()
    if not pids <= clients:
        gone = "mps did not have the processes as clients; it came or went"
        raise _NotProvedError(gone, is_answer=False)
    if splits[0] != splits[1]:
        different = f"two processes get different splits: {splits[0]} and {splits[1]}"
        raise _NotProvedError(different, is_answer=True)
    found = Found(splits[0]["groups"], splits[0]["group_sms"])
    for sets in _divisions(found.groups):
        problem = _apart(holders, sets)
        if problem == SHARED and pids != clients | found_there():
            raise _NotProvedError(CROWDED, is_answer=False)
        if problem:
            raise _NotProvedError(problem, is_answer=problem == SHARED)
    return found


def _clients(control: _mps.Control) -> set[int]:
    """Pids of those of that MPS."""
    servers = control.servers()
    if servers is None:
        raise _NotProvedError("mps has ended meanwhile, or does not answer", is_answer=False)
    return {pid for server in servers for pid in control.clients(server) or ()}


Sets = tuple[list[int], list[int]]  # the groups of each of the two


def _divisions(groups: int) -> Iterator[Sets]:
    """In two, so that of every two groups each is in each of the sets in one of them.

    By the binary digits of their numbers: those of two groups differ somewhere.
    """
    for bit in range((groups - 1).bit_length()):
        zeros = [group for group in range(groups) if not group >> bit & 1]
        ones = [group for group in range(groups) if group >> bit & 1]
        yield zeros, ones
        yield ones, zeros


def _apart(holders: Sequence[_Holder], sets: Sets) -> str:
    """Why they are not, as far as can be seen; empty: they have no SM in common."""
    for holder, groups in zip(holders, sets, strict=True):
        holder.tell(f"take {' '.join(map(str, groups))}")
    rooms = [holder.hear()["room"] for holder in holders]
    if not all(rooms):
        raise _NotProvedError("a set has no SMs", is_answer=True)
    for stay_ns in STAYS_NS:
        problem = _try(holders, stay_ns)
        if not problem:
            break
    # In the end they stayed many times as long as it takes to begin: that is no chance any more.
    return problem


SHARED = "sets that should be disjoint share SMs: what is on the one waits for what is on the other"
CROWDED = "of two sets what is on the one waited, maybe for others that were on the gpu, too"
TOO_FEW = "a process did not have all SMs of its set"
TOO_MANY = "a set has more SMs than it was made of"


def _try(holders: Sequence[_Holder], stay_ns: int) -> str:
    """As `_apart`, of one length."""
    for holder in holders:
        (alone,) = _stay([holder], extra=1, stay_ns=stay_ns)
        if alone["began"] >= alone["left"]:  # others may have been on them
            return TOO_FEW
        # Clocks of two SMs may differ a little; with room it begins beside the others.
        if alone["extra"] < alone["left"] - stay_ns // 2:
            raise _NotProvedError(TOO_MANY, is_answer=True)
    both = _stay(holders, extra=0, stay_ns=stay_ns)
    are_together = max(each["began"] for each in both) < min(each["left"] for each in both)
    return "" if are_together else SHARED


def _stay(holders: Sequence[_Holder], *, extra: int, stay_ns: int) -> list[Said]:
    for holder in holders:
        holder.tell(f"stay {extra} {stay_ns}")
    for holder in holders:
        holder.hear()  # it is ready: both are let go at once
    for holder in holders:
        holder.tell("")
    return [holder.hear() for holder in holders]


if __name__ == "__main__":
    main()
