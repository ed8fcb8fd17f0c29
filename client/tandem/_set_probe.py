"""Whether two processes that split the SMs of a GPU alike get sets that have no SM in common.

A program: `python -m tandem._set_probe` prints one JSON object, with how many groups there are, how
many SMs are in each, and what is wrong, if anything is. It starts two of itself, as clients of the
MPS that its environment names, each with a green context over one half of the groups and a kernel
whose blocks write down the SM that they run on (PTX's `%smid`), both let go together. Blocks stay
until all SMs of the half have been seen, or they have looked `MOST_LOOKS` times: who sees fewer has
proved nothing. They are processes of their own because a sick driver may hang or kill them. The GPU
is the first that CUDA_VISIBLE_DEVICES lets them see; of a software GPU they get a device process of
their own, so that nobody's clock waits. The two end with the program, however that ends.

A program that finds no MPS runs without it and is not told, and MPS may end at any time. So its
control daemon is asked, when both have their contexts, whether they are its clients: without it the
two take turns, which proves nothing. `TANDEM_PROBE_MPS` says where it has its pipe; nothing is
asked where that is not set.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from tandem import _mps

CONTROL = "TANDEM_PROBE_MPS"  # set by whoever knows where the control daemon is
ANSWER_S = 5.0  # of that
TIMEOUT_S = 20.0
END_S = 1.0  # of one that was killed; a sick driver may keep it
PR_SET_PDEATHSIG = 1
MOST_GROUPS = 256
RESOURCE_BYTES = 144  # of a CUdevResource
SM_COUNT_AT = 96  # where its number of SMs is
SM_RESOURCE = 1  # CU_DEV_RESOURCE_TYPE_SM
DEFAULT_STREAM, NON_BLOCKING = 1, 1
NOT_SUPPORTED, NO_SERVER = 801, 805  # of CUresult; the second one is MPS's
NO_SERVER_HINT = "mps has started no server, and its control daemon's log says why"
BLOCKS_PER_SM = 16
MOST_SMS = 1024  # whose numbers there is room for
MOST_LOOKS = 1 << 14  # of a block; some milliseconds
NOT_OURS = ("LD_PRELOAD", "TANDEM_JOB_ID", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
# `out`: the number of SMs seen, then a word for each that is 1 once it was seen.
KERNEL = f"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry where_am_i(.param .u64 out, .param .u32 expected) {{
  .reg .pred %p<3>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [expected];
  cvta.to.global.u64 %rd1, %rd1;
  mov.u32 %r2, %smid;
  setp.ge.u32 %p1, %r2, {MOST_SMS};
  @%p1 bra done;
  mul.wide.u32 %rd2, %r2, 4;
  add.s64 %rd3, %rd1, %rd2;
  mov.u32 %r5, 0;
  atom.global.exch.b32 %r3, [%rd3+4], 1;
  setp.ne.u32 %p1, %r3, 0;
  @%p1 bra stay;
  red.global.add.u32 [%rd1], 1;
stay:
  ld.volatile.global.u32 %r4, [%rd1];
  add.u32 %r5, %r5, 1;
  setp.lt.u32 %p1, %r4, %r1;
  setp.lt.u32 %p2, %r5, {MOST_LOOKS};
  and.pred %p1, %p1, %p2;
  @%p1 bra stay;
done:
  ret;
}}
\0""".encode()


@dataclass(frozen=True, slots=True)
class Found:
    """What came out."""

    groups: int = 0
    group_sms: int = 0
    problem: str = ""  # empty: sets of two processes are disjoint
    is_answer: bool = True  # of the driver; else asked again it may say something else


Said = dict[str, Any]  # of one of the two: JSON
T = TypeVar("T")


class _DriverError(Exception):
    """A call failed, or is not there."""

    def __init__(self, text: str, *, is_answer: bool = True) -> None:
        super().__init__(text)
        self.is_answer = is_answer


def main() -> None:
    """Probe, or be one of the two that are probed."""
    # The daemon blocks its own signals. To unblock them between fork and exec would be code of ours
    # in a copy of a process with many threads.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if sys.argv[1:]:
        _end_with(int(sys.argv[2]))
        _client(int(sys.argv[1]))
        return
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
    command = [sys.executable, "-m", "tandem._set_probe"]
    clients = [
        subprocess.Popen(
            [*command, str(half), str(os.getpid())],
            env=own,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for half in (0, 1)
    ]
    control = (
        _mps.Control(Path(at), environment=own, timeout_s=ANSWER_S)
        if (at := own.get(CONTROL))
        else None
    )
    return _judge(clients, time.monotonic() + TIMEOUT_S, control)


def _judge(
    clients: list[subprocess.Popen[str]], end_s: float, control: _mps.Control | None = None
) -> Found:
    try:
        # Both are ready to launch before the first one does.
        splits: list[Said] = [json.loads(_line(client, end_s) or "{}") for client in clients]
        pids = {client.pid for client in clients}
        are_there = all("groups" in said for said in splits)
        if not are_there:
            return _compared(splits, [{}, {}])
        if control and (problem := _not_served(control, pids)):
            return Found(problem=problem, is_answer=False)
        for client in clients:
            assert client.stdin is not None
            client.stdin.write("go\n")
            client.stdin.flush()
        answers: list[Said] = [
            json.loads(client.communicate(timeout=_left_s(end_s))[0] or "{}") for client in clients
        ]
    except (OSError, ValueError, subprocess.TimeoutExpired):
        answers, splits = [{}, {}], [{}, {}]
    finally:
        for client in clients:
            client.kill()
        for client in clients:
            with suppress(subprocess.TimeoutExpired):
                client.wait(END_S)
            for pipe in filter(None, (client.stdin, client.stdout)):
                with suppress(OSError):  # what it did not read any more
                    pipe.close()
    return _compared(splits, answers)


def _not_served(control: _mps.Control, pids: set[int]) -> str:
    """Why what these do proves nothing of that MPS; empty: they are its clients."""
    servers = control.servers()
    if servers is None:
        return "mps has ended meanwhile, or does not answer"
    clients = {pid for server in servers for pid in control.clients(server) or ()}
    return "" if pids <= clients else "mps did not have the processes as clients; it came or went"


def _line(client: subprocess.Popen[str], end_s: float) -> str:
    """What it says next; empty: it has ended, or says nothing in time."""
    assert client.stdout is not None
    pipe, said = client.stdout.fileno(), b""
    while not said.endswith(b"\n"):
        ready, _, _ = select.select([pipe], [], [], _left_s(end_s))
        if not ready or not (piece := os.read(pipe, select.PIPE_BUF)):
            return ""
        said += piece
    return said.decode()


def _left_s(end_s: float) -> float:
    return max(0.0, end_s - time.monotonic())


def _end_with(parent: int) -> None:
    """Let the kernel end this process when that one ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(0)  # it has ended already


def _compared(splits: list[Said], answers: list[Said]) -> Found:
    for said in (*splits, *answers):
        if "problem" in said:
            return Found(problem=str(said["problem"]), is_answer=bool(said["is_answer"]))
    if not all(splits) or not all(answers):
        silence = "a process that was to have a set of SMs ended, or did not answer"
        return Found(problem=silence, is_answer=False)
    if splits[0] != splits[1]:
        return Found(problem=f"two processes get different splits: {splits[0]} and {splits[1]}")
    first, second = (set(answer["sms"]) for answer in answers)
    return _judged(Found(splits[0]["groups"], splits[0]["group_sms"]), first, second)


def _judged(found: Found, first: set[int], second: set[int]) -> Found:
    """What is found if the two halves were seen to be on these SMs."""
    if both := sorted(first & second):
        return Found(problem=f"sets that should be disjoint share SMs, such as {both[0]}")
    for seen, groups in zip((first, second), _halves(range(found.groups)), strict=True):
        expected = len(groups) * found.group_sms
        if len(seen) > expected:
            return Found(problem="a set has more SMs than it was made of")
        if not seen or len(seen) < expected:  # others may have been on them all the time
            too_few = f"a process ran on {len(seen)} of the {expected} SMs of its set"
            return Found(problem=too_few, is_answer=False)
    return found


def _halves(groups: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    middle = len(groups) // 2
    return groups[:middle], groups[middle:]


def _client(half: int) -> None:
    def say(what: Mapping[str, object]) -> None:
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()

    try:
        driver = _Driver()
        groups = driver.split()
        group_sms = _sms_of(groups[0])
        own = _halves(groups)[half]
        driver.enter(own)
        driver.load()
        say({"groups": len(groups), "group_sms": group_sms})
        driver.wait_outside(sys.stdin.readline)
        blocks = BLOCKS_PER_SM * group_sms * len(groups)
        say({"sms": driver.sms_seen(blocks, expected=len(own) * group_sms)})
    except _DriverError as error:
        say({"problem": str(error), "is_answer": error.is_answer})


class _Driver:
    """As much of the driver as the probe needs."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise _DriverError(str(error)) from error
        self._device = ctypes.c_int(0)
        self._stream = ctypes.c_void_p()
        self._kernel, self._out = ctypes.c_void_p(), ctypes.c_uint64()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(self._device), 0)

    def _call(self, name: str, *arguments: object) -> None:
        try:
            function = self._library[name]
        except AttributeError:
            raise _DriverError(f"the driver has no {name}") from None
        if (result := function(*arguments)) != 0:
            # All else may be so for a moment: no memory, MPS that is not ready, a GPU that is lost.
            if result == NOT_SUPPORTED:
                raise _DriverError(f"the driver does not support {name}", is_answer=True)
            why = f": {NO_SERVER_HINT}" if result == NO_SERVER else ""
            raise _DriverError(f"{name} failed with error {result}{why}", is_answer=False)

    def wait_outside(self, wait: Callable[[], object]) -> None:
        """For the other one; on a software GPU's virtual clock time is to pass meanwhile."""
        names = ("softgpu_wait_begin", "softgpu_wait_end")
        begin, end = (getattr(self._library, name, lambda: None) for name in names)
        begin()
        wait()
        end()

    def split(self) -> list[bytes]:
        """All groups of as few SMs as the driver makes."""
        whole = ctypes.create_string_buffer(RESOURCE_BYTES)
        rest = ctypes.create_string_buffer(RESOURCE_BYTES)
        found = ctypes.create_string_buffer(MOST_GROUPS * RESOURCE_BYTES)
        count = ctypes.c_uint(0)
        split = "cuDevSmResourceSplitByCount"
        self._call("cuDeviceGetDevResource", self._device, whole, SM_RESOURCE)
        self._call(split, None, ctypes.byref(count), whole, None, 0, 1)
        if not 2 <= count.value <= MOST_GROUPS:
            raise _DriverError(f"the number of groups the driver makes of the SMs is {count.value}")
        self._call(split, found, ctypes.byref(count), whole, rest, 0, 1)
        size = RESOURCE_BYTES
        return [found.raw[i * size : (i + 1) * size] for i in range(count.value)]

    def enter(self, groups: Sequence[bytes]) -> None:
        """Make a green context over these groups, and a stream in it."""
        description, green = ctypes.c_void_p(), ctypes.c_void_p()
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        self._call("cuCtxSetCurrent", context)
        self._call(
            "cuDevResourceGenerateDesc",
            ctypes.byref(description),
            ctypes.create_string_buffer(b"".join(groups)),
            len(groups),
        )
        made = ctypes.byref(green)
        self._call("cuGreenCtxCreate", made, description, self._device, DEFAULT_STREAM)
        self._call("cuGreenCtxStreamCreate", ctypes.byref(self._stream), green, NON_BLOCKING, 0)

    def load(self) -> None:
        """The kernel, and zeros for it to write to."""
        module, words = ctypes.c_void_p(), 1 + MOST_SMS
        self._call("cuModuleLoadData", ctypes.byref(module), KERNEL)
        self._call("cuModuleGetFunction", ctypes.byref(self._kernel), module, b"where_am_i")
        self._call("cuMemAlloc_v2", ctypes.byref(self._out), ctypes.c_size_t(4 * words))
        self._call("cuMemsetD32Async", self._out, 0, ctypes.c_size_t(words), self._stream)
        self._call("cuStreamSynchronize", self._stream)

    def sms_seen(self, blocks: int, *, expected: int) -> list[int]:
        """The SMs that so many blocks ran on, which stay until there are so many."""
        words, number = (ctypes.c_uint32 * (1 + MOST_SMS))(), ctypes.c_uint32(expected)
        arguments = (ctypes.c_void_p * 2)(ctypes.addressof(self._out), ctypes.addressof(number))
        shape = (blocks, 1, 1, 1, 1, 1, 0)
        self._call("cuLaunchKernel", self._kernel, *shape, self._stream, arguments, None)
        self._call("cuStreamSynchronize", self._stream)
        self._call("cuMemcpyDtoH_v2", words, self._out, ctypes.c_size_t(ctypes.sizeof(words)))
        return [sm for sm in range(MOST_SMS) if words[1 + sm]]


def _sms_of(group: bytes) -> int:
    return int.from_bytes(group[SM_COUNT_AT : SM_COUNT_AT + 4], sys.byteorder)


if __name__ == "__main__":
    main()
