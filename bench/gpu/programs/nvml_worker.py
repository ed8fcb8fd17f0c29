"""What NVML reports about device 0, queried by a process that does not run under Tandem.

`python -m bench.gpu.programs.nvml_worker` sends `ready` and then, for each line on stdin, how much
memory is used. With `back SLACK_BYTES DEADLINE_S` it waits, at each line, until no more is used
than at the start.
"""

from __future__ import annotations

import sys
import time

from tandem.demo.lines import say

PAUSE_S = 0.0005


def main() -> None:
    """Watch the device as the command line says."""
    watch = _Watch()
    say("ready", used_bytes=watch.used_bytes(), total_bytes=watch.total_bytes())
    match sys.argv[1:]:
        case ["back", slack_bytes, deadline_s]:
            wanted = watch.used_bytes() + int(slack_bytes)
            for _ in sys.stdin:
                say("back", **watch.wait_for(wanted, float(deadline_s)))
        case _:
            for _ in sys.stdin:
                say("read", used_bytes=watch.used_bytes(), **watch.processes())


class _Watch:
    """The device, as NVML sees it."""

    def __init__(self) -> None:
        import pynvml

        self._nvml = pynvml
        pynvml.nvmlInit()
        self._device = pynvml.nvmlDeviceGetHandleByIndex(0)

    def used_bytes(self) -> int:
        return int(self._nvml.nvmlDeviceGetMemoryInfo(self._device).used)

    def total_bytes(self) -> int:
        return int(self._nvml.nvmlDeviceGetMemoryInfo(self._device).total)

    def processes(self) -> dict[str, object]:
        """Bytes of each compute process, by pid; null if NVML does not tell."""
        try:
            found = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._device)
        except self._nvml.NVMLError as error:
            return {"result": str(error), "processes": {}}
        held = {str(process.pid): process.usedGpuMemory for process in found}
        return {"result": "success", "processes": held}

    def wait_for(self, wanted_bytes: int, deadline_s: float) -> dict[str, object]:
        """Wait until no more than that is used, or until the deadline."""
        end = time.monotonic() + deadline_s
        longest_s = 0.0
        while True:
            asked = time.monotonic()
            used = self.used_bytes()
            now = time.monotonic()
            longest_s = max(longest_s, now - asked)
            if used <= wanted_bytes or now > end:
                return {
                    "is_back": used <= wanted_bytes,
                    "at_ns": time.monotonic_ns(),
                    "missing_bytes": max(used - wanted_bytes, 0),
                    "longest_call_us": round(longest_s * 1e6, 1),
                }
            time.sleep(PAUSE_S)


if __name__ == "__main__":
    main()
