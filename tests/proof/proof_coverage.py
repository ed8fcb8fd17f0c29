"""What random programs reach: successful calls by subject, and the shim's handlers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import cache

from proof_compare import FLAVOUR
from proof_program import Program, Step
from proof_stage import ROOT, Outcome


def _calls(pattern: str) -> Callable[[Step], bool]:
    wanted = re.compile(pattern)
    return lambda step: bool(wanted.fullmatch(FLAVOUR.sub("", step.symbol)))


def _is_on_second_device(step: Step) -> bool:
    creates = step.symbol in ("cuCtxCreate_v2", "cuDevicePrimaryCtxRetain")
    return creates and step.arguments[-1] == "1"


# The programs that CI runs reach every one of these.
SUBJECTS: dict[str, Callable[[Step], bool]] = {
    "kernels": _calls(r"cuLaunch(Kernel|KernelEx|CooperativeKernel)"),
    "copies": _calls(r"cuMemcpy(HtoD|DtoH|DtoD|2D|3D)?(Async)?(_v2)?"),
    "batches of copies": _calls(r"cuMemcpyBatchAsync(_v2)?"),
    "batches of boxes": _calls(r"cuMemcpy3DBatchAsync(_v2)?"),
    "copies between contexts": _calls("cuMemcpyPeerAsync"),
    "memsets": _calls(r"cuMemsetD(2D)?\d+(Async|_v2)"),
    "prefetches": _calls(r"cuMemPrefetch(Batch)?Async(_v2)?"),
    "discards": _calls("cuMemDiscardBatchAsync"),
    "arrays made": _calls("cuArray(3D)?Create_v2|cuMipmappedArrayCreate"),
    "arrays copied": _calls(r"cuMemcpy(HtoA|AtoH|AtoA|AtoD|DtoA)(Async)?_v2"),
    "arrays destroyed": _calls("cu(Mipmapped)?ArrayDestroy"),
    "stream memory operations": _calls(r"cuStream(Write|Wait)Value(32|64)_v2"),
    "host functions": _calls("cuLaunchHostFunc"),
    "captures": _calls("cuStreamBeginCapture_v2"),
    "captures into a graph": _calls("cuStreamBeginCaptureToGraph"),
    "graph launches": _calls("cuGraphLaunch"),
    "graph uploads": _calls("cuGraphUpload"),
    "graph updates": _calls("cuGraphExecUpdate(_v2)?"),
    "pools": _calls("cuMemAlloc(FromPool)?Async"),
    "virtual memory": _calls("cuMemMap"),
    "managed memory": _calls("cuMemAllocManaged"),
    "per-thread streams": lambda step: step.stream == "2",
    "memory of another process": _calls("cuIpcOpenMemHandle_v2"),
    "events of another process": _calls("cuIpcOpenEventHandle"),
    "second device": _is_on_second_device,
    "threads side by side": lambda step: step.is_aside,
}


def succeeded(program: Program, outcome: Outcome) -> list[Step]:
    return [
        step
        for index, step in enumerate(program.steps)
        if step.symbol.startswith("cu") and outcome.steps.get(index, "").split()[:1] == ["0"]
    ]


def subjects(steps: list[Step]) -> Counter[str]:
    """Count these calls by subject."""
    found: Counter[str] = Counter()
    for step in steps:
        found.update(subject for subject, is_about in SUBJECTS.items() if is_about(step))
    return found


@cache
def handlers() -> dict[str, str]:
    """Return symbol -> its handler in the shim, from calls.def."""
    table = (ROOT / "shim/calls.def").read_text()
    rows = re.findall(r"^CALL\((\w+), \d+, \w+, (\w+), ", table, re.M)
    return {symbol: handler for symbol, handler in rows if handler not in ("pass", "forward")}
