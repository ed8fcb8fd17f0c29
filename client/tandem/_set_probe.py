"""Whether two processes that split the SMs of a GPU in the same way get disjoint sets of SMs.

A program: `python -m tandem._set_probe` prints one JSON object with the number of groups, the SMs
in each, and what is wrong, if anything. It starts two `tandem._set_holder` as clients of the MPS
that its environment names. They are separate processes because a broken driver may hang or kill
them. The GPU is the first that CUDA_VISIBLE_DEVICES shows them; for a software GPU they get their
own device process, so that nobody's clock waits. Both end with this program, however it ends.

The proof. Each process has a green context over some of the groups, and launches a kernel with as
many blocks as fit on their SMs, each of which stays for a while. If at some moment all blocks of
both were resident, and neither set has room for one more, the two sets have no SM in common. Nobody
has to know which SMs they are: drivers number them within each set (`%smid` under MPS on an H200,
driver 580). The test is repeated for enough divisions of the groups that any two groups were in
different sets in one of them, either way round. Blocks of one process might begin late by chance.
So the test is retried with longer stays, until only waiting for the other process's blocks explains
it.

A program that finds no MPS silently runs without it, and MPS may end at any time. Without MPS the
two would be time-sliced, and by the clock, blocks that were switched out would count as resident.
So once both have their contexts, the control daemon is asked whether they are its clients. Blocks
may also wait for those of another client, so "sets share SMs" is an answer only if MPS has no other
clients. `TANDEM_PROBE_MPS` names the control daemon's pipe directory; if it is not set, the two
have the GPU to themselves.
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

CONTROL = "TANDEM_PROBE_MPS"  # set by a caller that knows where the control daemon is
ANSWER_S = 5.0  # for the control daemon to answer
TIMEOUT_S = 20.0
END_S = 1.0  # for a killed process to end; a broken driver may keep it
STAYS_NS = tuple(4_000_000 << i for i in range(6))  # tried one after the other, until one proves it
NOT_OURS = ("LD_PRELOAD", "TANDEM_JOB_ID", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
HOLDER = "tandem._set_holder"
SILENCE = "a process that was to run on a set of SMs ended, or did not answer"


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a probe."""

    groups: int = 0
    group_sms: int = 0
    problem: str = ""  # empty: sets of two processes are disjoint
    is_answer: bool = True  # the driver's answer; else another probe may have another result


Said = dict[str, Any]  # JSON that one of the two printed


class _NotProvedError(Exception):
    """The sets could not be proved disjoint; says why."""

    def __init__(self, problem: str, *, is_answer: bool) -> None:
        super().__init__(problem)
        self.is_answer = is_answer


def main() -> None:
    """Probe, and print the result."""
    # The daemon blocks its own signals. Unblocking them between fork and exec would run our code in
    # the copy of a process with many threads.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the two are killed as well
    sys.stdout.write(json.dumps(asdict(probe(os.environ))) + "\n")


def probe(environment: Mapping[str, str]) -> Found:
    """Run the two holders; blocks for at most `TIMEOUT_S`. Never raises."""
    own = {name: value for name, value in environment.items() if name not in NOT_OURS}
    if "CUDA_MPS_PIPE_DIRECTORY" in own:
        return _probe_in(own)
    # A software GPU that is in mode mps by itself: probe on another one like it. With an MPS server
    # only its own device will do, and there may be no place to write to.
    try:
        with tempfile.TemporaryDirectory(prefix="tandem-probe-") as place:
            own |= {"TANDEM_SOFTGPU_DIR": place, "TANDEM_SOFTGPU_CLOCK": "real"}
            own |= {"TANDEM_SOFTGPU_START_CLIENTS": "0", "TANDEM_SOFTGPU_LINGER_MS": "0"}
            for name in ("TANDEM_SOFTGPU_TIMELINE", "TANDEM_SOFTGPU_FAULTS"):
                own.pop(name, None)
            return _probe_in(own)
    except OSError as error:
        return Found(
            problem=f"cannot create a directory for another software gpu: {error}", is_answer=False
        )


def as_client(
    place: Path, environment: Mapping[str, str], *, timeout_s: float
) -> dict[str, str] | str | None:
    """The environment for a probe under that MPS, or why there is none now; None: no MPS answers.

    No probe is started while MPS works for another user: its servers serve one user at a time. The
    two would have to wait for that user, and the next user for the two. `timeout_s` limits each
    question.
    """
    control, uid = _mps.Control(place, environment=environment, timeout_s=timeout_s), os.geteuid()
    if (servers := control.servers()) is None:
        return None
    for server in servers:
        owner = server.owner
        if owner not in (None, uid) and control.clients(server) != []:
            return f"the running mps serves uid {owner} now"
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
                with suppress(OSError):  # unwritten input, which the process no longer reads
                    pipe.close()


def _let_end(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Let the holders end by themselves: killing MPS clients may harm others of the same MPS."""
    for process in processes:
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.close()
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)


class _Holder:
    """The connection to one of the two; a problem that it reports ends the proof."""

    def __init__(self, process: subprocess.Popen[str], end_s: float) -> None:
        self.pid = process.pid
        self._process, self._end_s = process, end_s

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it ended, but may have printed why
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def hear(self) -> Said:
        """Return its next answer."""
        said: Said = json.loads(self._line())
        if "problem" in said:
            raise _NotProvedError(str(said["problem"]), is_answer=bool(said["is_answer"]))
        return said

    def _line(self) -> bytes:
        """Return its next line; empty: it ended, or did not answer in time."""
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
        gone = "the processes were not clients of mps, which started or ended meanwhile"
        raise _NotProvedError(gone, is_answer=False)
    if splits[0] != splits[1]:
        different = f"two processes got different splits: {splits[0]} and {splits[1]}"
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
    """The pids of all clients of that MPS."""
    servers = control.servers()
    if servers is None:
        raise _NotProvedError("mps ended meanwhile, or does not answer", is_answer=False)
    return {pid for server in servers for pid in control.clients(server) or ()}


Sets = tuple[list[int], list[int]]  # the groups of each process


def _divisions(groups: int) -> Iterator[Sets]:
    """Yield divisions of the groups in two that separate any two of them, either way round.

    They are divided by the binary digits of their numbers: any two numbers differ in one.
    """
    for bit in range((groups - 1).bit_length()):
        zeros = [group for group in range(groups) if not group >> bit & 1]
        ones = [group for group in range(groups) if group >> bit & 1]
        yield zeros, ones
        yield ones, zeros


def _apart(holders: Sequence[_Holder], sets: Sets) -> str:
    """Why the sets are not proved disjoint; empty: they have no SM in common."""
    for holder, groups in zip(holders, sets, strict=True):
        holder.tell(f"take {' '.join(map(str, groups))}")
    rooms = [holder.hear()["room"] for holder in holders]
    if not all(rooms):
        raise _NotProvedError("a set has no SMs", is_answer=True)
    for stay_ns in STAYS_NS:
        problem = _try(holders, stay_ns)
        if not problem:
            break
    # By now they have stayed many times as long as a start takes: it is not by chance.
    return problem


SHARED = "sets that should be disjoint share SMs: work on one waits for work on the other"
CROWDED = "work on one of two sets waited, maybe for other work on the gpu"
TOO_FEW = "a process did not have all SMs of its set"
TOO_MANY = "a set has more SMs than its groups have"


def _try(holders: Sequence[_Holder], stay_ns: int) -> str:
    """Like `_apart`, for one length of stay."""
    for holder in holders:
        (alone,) = _stay([holder], extra=1, stay_ns=stay_ns)
        if alone["began"] >= alone["left"]:  # others may have been on these SMs
            return TOO_FEW
        # Clocks of two SMs may differ a little; if it has room, the extra block begins with the
        # others.
        if alone["extra"] < alone["left"] - stay_ns // 2:
            raise _NotProvedError(TOO_MANY, is_answer=True)
    both = _stay(holders, extra=0, stay_ns=stay_ns)
    are_together = max(each["began"] for each in both) < min(each["left"] for each in both)
    return "" if are_together else SHARED


def _stay(holders: Sequence[_Holder], *, extra: int, stay_ns: int) -> list[Said]:
    for holder in holders:
        holder.tell(f"stay {extra} {stay_ns}")
    for holder in holders:
        holder.hear()  # ready: both are then released at once
    for holder in holders:
        holder.tell("")
    return [holder.hear() for holder in holders]


if __name__ == "__main__":
    main()
