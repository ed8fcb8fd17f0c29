"""Plays one process of a plan on the software GPU: `python -m tandem.trace.player PLAN INDEX`.

PLAN is the file that `replay` writes. The results go to stdout as one JSON object. Each recorded
thread is played by a thread of its own; they are ordered only as the plan says.
"""

import ctypes
import json
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tandem.softgpu import runtime_folder
from tandem.softgpu._query import device_status
from tandem.trace.driver import Driver, PlayError, Word
from tandem.trace.latch import Latch

_NON_BLOCKING, _DISABLE_TIMING, _HOST_PORTABLE = 1, 2, 1
_EXIT_FAILED = 1

Values = dict[str, Any]  # a JSON object of the plan


def main() -> int:
    """Play the process that the command line names."""
    plan = json.loads(Path(sys.argv[1]).read_text())
    process = plan["processes"][int(sys.argv[2])]
    try:
        figures = Player(plan, process).play()
    except PlayError as exc:
        sys.stderr.write(f"process {process['pid']} of the recording: {exc}\n")
        return _EXIT_FAILED
    sys.stdout.write(json.dumps(figures) + "\n")
    return 0


class Handles:
    """Objects that stand for the recorded handles, made before anything is played."""

    def __init__(self, driver: Driver, plan: Values, process: Values) -> None:
        """Make the objects.

        Raises:
            PlayError: the device has no room for them.
        """
        self._driver = driver
        self._process = process
        if result := driver.attempt("cuInit", 0):
            msg = f"cuInit fails with {result}"
            raise PlayError(msg)
        self.contexts = [self._context(number) for number in range(process["contexts"])]
        self._modules = self._in_each(lambda: driver.made("cuModuleLoadData", image_of(plan)))
        self.functions = [
            [driver.made("cuModuleGetFunction", module, name.encode()) for name in plan["symbols"]]
            for module in self._modules
        ]
        size = max(1, process["largest_copy_bytes"])
        make = lambda: driver.made("cuMemAlloc_v2", ctypes.c_size_t(size))  # noqa: E731
        self.scratch = list(zip(self._in_each(make), self._in_each(make), strict=True))
        self.host = driver.made("cuMemHostAlloc", ctypes.c_size_t(size), _HOST_PORTABLE)
        self.streams = [self._stream(number) for number in range(len(process["streams"]))]
        self.enter(0)
        self.events = [
            driver.made("cuEventCreate", _DISABLE_TIMING) for _ in range(process["events"])
        ]

    def enter(self, context: int) -> None:
        """Make a context current in the calling thread."""
        self._driver.call("cuCtxSetCurrent", self.contexts[context])

    def _context(self, number: int) -> Word:
        device = ctypes.c_int()
        self._driver.attempt("cuDeviceGet", ctypes.byref(device), 0)
        if number == 0:
            return self._driver.made("cuDevicePrimaryCtxRetain", device)
        return self._driver.made("cuCtxCreate_v2", 0, device)

    def _in_each(self, make: Callable[[], Word]) -> list[Word]:
        made = []
        for number in range(len(self.contexts)):
            self.enter(number)
            made.append(make())
        return made

    def _stream(self, number: int) -> Word:
        if default := self._process["default_streams"].get(str(number)):
            return Word(default)
        context, is_non_blocking = self._process["streams"][number]
        self.enter(context)
        return self._driver.made("cuStreamCreate", _NON_BLOCKING if is_non_blocking else 0)


def image_of(plan: Values) -> bytes:
    """The module that contains the kernels."""
    return Path(plan["image"]).read_bytes()


class Player:
    """Plays the threads of one process."""

    def __init__(self, plan: Values, process: Values) -> None:
        self._driver = Driver()
        self._process = process
        self._handles = Handles(self._driver, plan, process)
        self._has_gaps = plan["speed"] == "recorded"
        self._latches = {
            operation["id"]: Latch(self._driver.outside)
            for thread in process["threads"]
            for operation in thread["operations"]
            if operation["id"] >= 0
        }
        self._addresses: dict[int, tuple[Word, bool]] = {}  # address, whether pooled
        (device,) = json.loads(device_status(runtime_folder()))["devices"][:1]
        self._flops_per_ns = device["flops_per_s"] / device["sm_count"] / 1e9  # of a single SM
        self._counts: Counter[str] = Counter()
        self._spans: list[tuple[int, int]] = []
        self._play = {
            name.removeprefix("_play_"): getattr(self, name)
            for name in dir(self)
            if name.startswith("_play_")
        }

    def play(self) -> Values:
        """Play everything; return begin, end and counts."""
        threads = self._process["threads"]
        ready = threading.Barrier(len(threads) + 1)
        running = [
            threading.Thread(target=self._thread, args=(thread, ready)) for thread in threads
        ]
        for one in running:
            one.start()
        ready.wait()  # from here on all threads count in virtual time
        with self._driver.outside():
            for one in running:
                one.join()
        return {
            "start_ns": min((start for start, _ in self._spans), default=0),
            "end_ns": max((end for _, end in self._spans), default=0),
            "counts": dict(self._counts),
            "refused": dict(self._driver.refused),
        }

    def _thread(self, thread: Values, ready: threading.Barrier) -> None:
        self._handles.enter(0)
        ready.wait()
        context = 0
        start_ns = self._driver.now_ns()
        if self._has_gaps:
            self._driver.sleep_until(start_ns + thread["start_gap_ns"])
            start_ns += thread["start_gap_ns"]
        for operation in thread["operations"]:
            if self._has_gaps and operation["gap_ns"]:
                self._driver.sleep_until(self._driver.now_ns() + operation["gap_ns"])
            for earlier in operation["after"]:
                self._latches[earlier].wait()
            if operation["context"] != context:
                context = operation["context"]
                self._handles.enter(context)
            self._play[operation["kind"]](operation)
            self._counts[operation["kind"]] += 1
            if operation["id"] >= 0:
                self._latches[operation["id"]].open()
        self._spans.append((start_ns, self._driver.now_ns()))

    def _stream(self, operation: Values) -> Word | None:
        number = operation["stream"]
        return self._handles.streams[number] if number >= 0 else None

    def _play_alloc(self, operation: Values) -> None:
        size = ctypes.c_size_t(operation["size_bytes"])
        address = Word()
        place = ctypes.byref(address)
        stream = self._stream(operation)
        pooled = stream is not None and not self._driver.attempt(
            "cuMemAllocAsync", place, size, stream
        )
        if pooled or self._driver.call("cuMemAlloc_v2", place, size):
            self._addresses[operation["allocation"]] = (address, pooled)

    def _play_free(self, operation: Values) -> None:
        address, pooled = self._addresses.pop(operation["allocation"], (None, False))
        if address is None:
            return  # the allocation was refused
        stream = self._stream(operation)
        if stream is None:
            self._driver.call("cuMemFree_v2", address)
        elif pooled:
            self._driver.call("cuMemFreeAsync", address, stream)
        # Otherwise keep it: freeing it here would wait for the device, unlike the recorded program.

    def _play_copy(self, operation: Values) -> None:
        first, second = self._handles.scratch[operation["context"]]
        host = self._handles.host
        name, to, source = {
            "htod": ("cuMemcpyHtoD", first, host),
            "dtoh": ("cuMemcpyDtoH", host, first),
            "dtod": ("cuMemcpyDtoD", first, second),
        }[operation["direction"]]
        size = ctypes.c_size_t(operation["size_bytes"])
        stream = self._stream(operation)
        if stream is None:
            self._driver.call(f"{name}_v2", to, source, size)
        else:
            self._driver.call(f"{name}Async_v2", to, source, size, stream)

    def _play_set(self, operation: Values) -> None:
        first, _ = self._handles.scratch[operation["context"]]
        size = ctypes.c_size_t(operation["size_bytes"])
        stream = self._stream(operation)
        if stream is None:
            self._driver.call("cuMemsetD8_v2", first, 0, size)
        else:
            self._driver.call("cuMemsetD8Async", first, 0, size, stream)

    def _play_launch(self, operation: Values) -> None:
        # One block on one SM: the recorded time includes the effect of sharing with other kernels.
        flops = ctypes.c_double(operation["device_ns"] * self._flops_per_ns)
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(flops))
        function = self._handles.functions[operation["context"]][operation["kernel"]]
        stream = self._stream(operation)
        one = (1, 1, 1)
        self._driver.call("cuLaunchKernel", function, *one, *one, 0, stream, parameters, None)

    def _play_record(self, operation: Values) -> None:
        event = self._handles.events[operation["event"]]
        self._driver.call("cuEventRecord", event, self._stream(operation))

    def _play_wait(self, operation: Values) -> None:
        event = self._handles.events[operation["event"]]
        self._driver.call("cuStreamWaitEvent", self._stream(operation), event, 0)

    def _play_sync_event(self, operation: Values) -> None:
        self._driver.call("cuEventSynchronize", self._handles.events[operation["event"]])

    def _play_sync_stream(self, operation: Values) -> None:
        self._driver.call("cuStreamSynchronize", self._stream(operation))

    def _play_sync_context(self, _operation: Values) -> None:
        self._driver.call("cuCtxSynchronize")

    def _play_destroy(self, operation: Values) -> None:
        self._driver.call("cuStreamDestroy_v2", self._stream(operation))


if __name__ == "__main__":
    sys.exit(main())
