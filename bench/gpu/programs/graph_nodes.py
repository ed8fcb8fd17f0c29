"""Examines what captured graphs consist of.

    python -m bench.gpu.programs.graph_nodes driver|torch|compiled DEVICE FILE

Prints a JSON object: nodes by kind, and which contexts they name. A query that the driver fails to
answer gets the error's name. The driver's own description of the first graph goes to FILE.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from cuda.bindings import driver

from bench.gpu.programs import ENVIRONMENT
from bench.gpu.programs.by_driver import IMAGE
from tandem.demo.gpu import DriverError, Gpu, Handle, check
from tandem.demo.words import Input, Words

KERNEL, COPY, SET = "kernel", "memcpy", "memset"
MOST_GRAPHS = 8
CONTEXT_FIELDS = {KERNEL: ("kernel", "ctx"), COPY: ("memcpy", "copyCtx"), SET: ("memset", "ctx")}


def main() -> None:
    """Capture graphs and describe them."""
    what, device, file = sys.argv[1:]
    for variable, value in ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    graphs = CAPTURED[what](device)
    graphs = [graph for graph in graphs if _nodes(graph)]  # torch has an additional empty one
    told = describe(graphs[:MOST_GRAPHS]) | {"graphs": len(graphs)}
    if graphs:
        told["drawn"] = draw(graphs[0], Path(file))
    print(json.dumps(told))


def draw(graph: Handle, file: Path) -> dict[str, Any]:
    """Let the driver print a graph verbosely; tell whether it mentions contexts."""
    flags = driver.CUgraphDebugDot_flags.CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE.value
    try:
        check(driver.cuGraphDebugDotPrint(graph, str(file).encode(), flags))
        lines = file.read_text(errors="replace").splitlines()
    except (OSError, RuntimeError) as error:
        return {"error": str(error)}
    mentions = [line for line in lines if re.search("context|ctx", line, re.I)]
    return {"lines": len(lines), "with_context": len(mentions)}


def describe(graphs: Iterable[Handle]) -> dict[str, Any]:
    """Count nodes, kernel parameters and contexts over all graphs."""
    kinds: Counter[str] = Counter()
    kernels: Counter[str] = Counter()
    contexts: dict[str, Counter[str]] = {kind: Counter() for kind in CONTEXT_FIELDS}
    for graph in graphs:
        for node in _nodes(graph):
            kind = check(driver.cuGraphNodeGetType(node)).name
            kind = kind.removeprefix("CU_GRAPH_NODE_TYPE_").lower()
            kinds[kind] += 1
            if kind == KERNEL:
                kernels += _kernel(node)
            if kind in contexts:
                contexts[kind][_context(node, kind)] += 1
    return {
        "nodes": dict(kinds),
        "kernel_parameters": dict(kernels),
        "contexts": {kind: dict(counts) for kind, counts in contexts.items()},
    }


def _nodes(graph: Handle) -> list[Handle]:
    count = check(driver.cuGraphGetNodes(graph, 0))[1]
    nodes: list[Handle] = check(driver.cuGraphGetNodes(graph, count))[0][:count] if count else []
    return nodes


def _kernel(node: Handle) -> Counter[str]:
    """What cuGraphKernelNodeGetParams returns: the context, and which handle names the kernel."""
    try:
        said = check(driver.cuGraphKernelNodeGetParams(node))
    except DriverError as error:
        return Counter({str(error): 1})
    handle = "by_function" if int(said.func) else "by_kernel" if int(said.kern) else "by_none"
    return Counter({f"context_{_name(int(said.ctx))}": 1, handle: 1})


def _context(node: Handle, kind: str) -> str:
    """The context that cuGraphNodeGetParams returns; the function exists from 13.2 on."""
    if not hasattr(driver, "cuGraphNodeGetParams"):
        return "not to be had: the bindings are older than 13.2"
    try:
        said: Any = check(driver.cuGraphNodeGetParams(node))
        for name in CONTEXT_FIELDS[kind]:
            said = getattr(said, name)
        return _name(int(said))
    except (AttributeError, RuntimeError, TypeError) as error:  # from the driver or the bindings
        return f"{type(error).__name__}: {error}"[:80]


def _name(context: int) -> str:
    if not context:
        return "none"
    return "current" if context == int(check(driver.cuCtxGetCurrent())) else "other"


def by_driver(device: str) -> list[Handle]:
    """Capture a copy, a memset and two kernels in a stream of our own."""
    del device
    gpu = Gpu(Path(os.environ[IMAGE]).read_bytes())
    stream, data, words = gpu.stream(), Input(gpu), Words(gpu, 1)
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    check(driver.cuStreamBeginCapture(stream, mode))
    data.upload(1, stream)
    check(driver.cuMemsetD32Async(words.address, 0, 16, stream))
    words.spread(data, stream)
    words.affine(3, 5, stream)
    return [check(driver.cuStreamEndCapture(stream))]


def by_torch(device: str) -> list[Handle]:
    """Capture a trainer's iteration: convolutions, matrix products, copies."""
    import torch

    from bench.gpu.programs.models import QUICK, make_trainer_step
    from bench.gpu.programs.torch_common import begin

    begin(device)
    kept = _keep_graphs(torch)
    step, _ = make_trainer_step("vision-graph", QUICK)
    step()
    return _raw(kept)


def by_compiling(device: str) -> list[Handle]:
    """Get what `torch.compile(mode="reduce-overhead")` captures: forward and backward pass."""
    import torch

    from bench.gpu.programs.torch_graphs import compiled

    kept = _keep_graphs(torch)
    made = compiled(device)
    for _ in range(3):
        made.step()
    return _raw(kept)


def _keep_graphs(torch: Any) -> list[Any]:  # noqa: ANN401  a module
    """Make torch keep every graph as captured from now on; return the list they are added to."""
    kept: list[Any] = []
    original: Any = torch.cuda.CUDAGraph

    class Kept(original):  # type: ignore[misc]  # a class still: torch names it in annotations
        def __new__(cls, *_: object, **__: object) -> Any:  # noqa: ANN401
            return original.__new__(cls, keep_graph=True)

        def __init__(self, *_: object, **__: object) -> None:
            super().__init__(keep_graph=True)
            kept.append(self)

    torch.cuda.CUDAGraph = Kept
    return kept


def _raw(kept: list[Any]) -> list[Handle]:
    """The raw graphs that still exist; torch may have reset some."""
    raw = []
    for graph in kept:
        with suppress(RuntimeError):
            raw.append(driver.CUgraph(graph.raw_cuda_graph()))
    return raw


CAPTURED: dict[str, Callable[[str], list[Handle]]] = {
    "driver": by_driver,
    "torch": by_torch,
    "compiled": by_compiling,
}

if __name__ == "__main__":
    main()
