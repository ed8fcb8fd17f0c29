"""One of the two processes of the probe of sets: it gets a set of SMs and fills it for a while.

A program: `python -m tandem._set_holder NUMBER PARENT` prints how the driver splits the SMs, then
answers each line of its standard input with a line of JSON.

    take GROUP...    use these groups from now on; answers {"room": number of blocks that fit there}
    stay EXTRA NS    answers {} when ready; after an empty line launches as many blocks as fit
                     there and EXTRA more, each of which stays for NS, and reports when, in
                     nanoseconds of the device's clock (PTX's %globaltimer, one for all processes)

        {"began": when the last block that fits began, "left": when the first of them left,
         "extra": when the first block beyond began, if one was asked for}

Any failure is reported as {"problem": ..., "is_answer": ...} and ends the program. NUMBER only
tells the two apart in a list of processes. The program ends with its parent, however that ends.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence

PR_SET_PDEATHSIG = 1
MOST_GROUPS = 256
RESOURCE_BYTES = 144  # size of a CUdevResource
SM_COUNT_AT = 96  # offset of its number of SMs
SM_RESOURCE = 1  # CU_DEV_RESOURCE_TYPE_SM
DEFAULT_STREAM, NON_BLOCKING = 1, 1
NOT_SUPPORTED, NO_SERVER = 801, 805  # CUresult; the second is MPS's
NO_SERVER_HINT = "mps has started no server, and its control daemon's log says why"
BLOCK_THREADS = 256  # divides the number of threads that fit on any SM
NAP_NS = 50_000
MOST_NAPS = 1 << 17  # of a block, in case the clock stands still; some seconds
NEVER = 2**64 - 1
FRESH = (0, 0, NEVER, NEVER)  # initial content of `out`
# `out` holds the number of blocks that have begun, then the values that `stay` reports. A block
# frees its place only when all its threads end, so they wait for the one that reads the clock.
KERNEL = f"""
.version 6.3
.target sm_70
.address_size 64
.visible .entry stay(.param .u64 out, .param .u64 room, .param .u64 stay_ns) {{
  .reg .pred %p<4>;
  .reg .b32 %r<3>;
  .reg .b64 %rd<9>;
  mov.u32 %r1, %tid.x;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra wait;
  ld.param.u64 %rd1, [out];
  ld.param.u64 %rd2, [room];
  ld.param.u64 %rd3, [stay_ns];
  cvta.to.global.u64 %rd1, %rd1;
  mov.u64 %rd4, %globaltimer;
  atom.global.add.u64 %rd5, [%rd1], 1;
  setp.ge.u64 %p1, %rd5, %rd2;
  @%p1 bra beyond;
  atom.global.max.u64 %rd6, [%rd1+8], %rd4;
  bra.uni begun;
beyond:
  atom.global.min.u64 %rd6, [%rd1+24], %rd4;
begun:
  mov.u32 %r2, 0;
nap:
  nanosleep.u32 {NAP_NS};
  mov.u64 %rd7, %globaltimer;
  sub.u64 %rd8, %rd7, %rd4;
  add.u32 %r2, %r2, 1;
  setp.lt.u64 %p2, %rd8, %rd3;
  setp.lt.u32 %p3, %r2, {MOST_NAPS};
  and.pred %p2, %p2, %p3;
  @%p2 bra nap;
  atom.global.min.u64 %rd6, [%rd1+16], %rd7;
wait:
  bar.sync 0;
  ret;
}}
\0""".encode()


class _DriverError(Exception):
    """A driver call failed, or does not exist."""

    def __init__(self, text: str, *, is_answer: bool = True) -> None:
        super().__init__(text)
        self.is_answer = is_answer


def main() -> None:
    """Answer until standard input ends."""
    # The process that started the parent may block signals.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _end_with(int(sys.argv[2]))
    try:
        driver = _Driver()
        _say({"groups": len(driver.groups), "group_sms": driver.group_sms})
        while words := driver.wait_outside(sys.stdin.readline).split():
            _do(driver, words)
    except _DriverError as error:
        _say({"problem": str(error), "is_answer": error.is_answer})


def _do(driver: _Driver, words: Sequence[str]) -> None:
    if words[0] == "take":
        _say({"room": driver.take([int(word) for word in words[1:]])})
        return
    extra, stay_ns = map(int, words[1:])
    _say({})
    # Read without `wait_outside`: on a virtual clock neither of the two ready holders may begin
    # much earlier. So between the order and this line nothing may wait for the device.
    sys.stdin.readline()
    _say(driver.stay(extra, stay_ns))


def _say(what: Mapping[str, object]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _end_with(parent: int) -> None:
    """Have the kernel kill this process when the parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(0)  # the parent has already ended


class _Driver:
    """The few driver calls that this program needs."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise _DriverError(str(error)) from error
        self._device = ctypes.c_int(0)
        self._green, self._stream = ctypes.c_void_p(), ctypes.c_void_p()
        self._kernel, self._out = ctypes.c_void_p(), ctypes.c_uint64()
        self._room = 0
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(self._device), 0)
        self.groups = self._split()
        self.group_sms = _sms_of(self.groups[0])
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        self._call("cuCtxSetCurrent", context)
        self._load()

    def _call(self, name: str, *arguments: object) -> None:
        try:
            function = self._library[name]
        except AttributeError:
            raise _DriverError(f"the driver has no {name}") from None
        if (result := function(*arguments)) != 0:
            # Any other error may be temporary: no memory, MPS not ready, a lost GPU.
            if result == NOT_SUPPORTED:
                raise _DriverError(f"the driver does not support {name}", is_answer=True)
            why = f": {NO_SERVER_HINT}" if result == NO_SERVER else ""
            raise _DriverError(f"{name} failed with error {result}{why}", is_answer=False)

    def wait_outside(self, wait: Callable[[], str]) -> str:
        """Call `wait` for another process; a software GPU's virtual clock may run meanwhile."""
        names = ("softgpu_wait_begin", "softgpu_wait_end")
        begin, end = (getattr(self._library, name, lambda: None) for name in names)
        begin()
        said = wait()
        end()
        return said

    def _split(self) -> list[bytes]:
        """All groups of SMs, each as small as the driver allows."""
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

    def _load(self) -> None:
        """Load the kernel, and allocate memory for its results."""
        module = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), KERNEL)
        self._call("cuModuleGetFunction", ctypes.byref(self._kernel), module, b"stay")
        size = ctypes.c_size_t(8 * len(FRESH))
        self._call("cuMemAlloc_v2", ctypes.byref(self._out), size)

    def take(self, numbers: Sequence[int]) -> int:
        """Switch to a green context over these groups; return how many blocks fit into it."""
        if self._green:
            self._call("cuStreamDestroy_v2", self._stream)
            self._call("cuGreenCtxDestroy", self._green)
        own = b"".join(self.groups[i] for i in numbers)
        description = ctypes.c_void_p()
        made = ctypes.byref(self._green)
        self._call(
            "cuDevResourceGenerateDesc",
            ctypes.byref(description),
            ctypes.create_string_buffer(own),
            len(numbers),
        )
        self._call("cuGreenCtxCreate", made, description, self._device, DEFAULT_STREAM)
        stream = ctypes.byref(self._stream)
        self._call("cuGreenCtxStreamCreate", stream, self._green, NON_BLOCKING, 0)
        per_sm = ctypes.c_int(0)
        self._call(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor",
            ctypes.byref(per_sm),
            self._kernel,
            BLOCK_THREADS,
            ctypes.c_size_t(0),
        )
        self._room = per_sm.value * self.group_sms * len(numbers)
        self._begin_anew()
        return self._room

    def _begin_anew(self) -> None:
        """Reset the kernel's results."""
        fresh = (ctypes.c_uint64 * len(FRESH))(*FRESH)
        size = ctypes.c_size_t(ctypes.sizeof(fresh))
        self._call("cuMemcpyHtoDAsync_v2", self._out, fresh, size, self._stream)
        self._call("cuStreamSynchronize", self._stream)

    def stay(self, extra: int, stay_ns: int) -> dict[str, int]:
        """Fill the set; return when all blocks have left."""
        room, how_long = ctypes.c_uint64(self._room), ctypes.c_uint64(stay_ns)
        places = map(ctypes.addressof, (self._out, room, how_long))
        shape = (self._room + extra, 1, 1, BLOCK_THREADS, 1, 1, 0)
        arguments = (ctypes.c_void_p * 3)(*places)
        self._call("cuLaunchKernel", self._kernel, *shape, self._stream, arguments, None)
        self._call("cuStreamSynchronize", self._stream)
        words = (ctypes.c_uint64 * len(FRESH))()
        size = ctypes.c_size_t(ctypes.sizeof(words))
        self._call("cuMemcpyDtoH_v2", words, self._out, size)
        self._begin_anew()
        return {"began": words[1], "left": words[2], "extra": words[3]}


def _sms_of(group: bytes) -> int:
    return int.from_bytes(group[SM_COUNT_AT : SM_COUNT_AT + 4], sys.byteorder)


if __name__ == "__main__":
    main()
