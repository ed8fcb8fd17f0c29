"""The times in a recording's graph agree with the device's timeline."""

import json
import sys
from itertools import pairwise

import pytest

from tandem._native import OperationKind, analyse
from tandem.dag.build import build
from tandem.dag.from_trace import from_trace
from tandem.trace.file import read

TOLERANCE_NS = 1_000  # the events around each operation, and their float times
TOLERANCE_RATIO = 0.01
ITERATIONS = 3

# Two streams copy and compute side by side, join by an event, and are waited for.
PROGRAM = """
import ctypes, tandem
from gpu import Gpu, address, ok, u32
from cuda.bindings import driver as cu
gpu = Gpu()
count = 4096
host = u32(*range(count))
a, b, c, d = (ok(cu.cuMemAlloc(4 * count)) for _ in range(4))
one, other = (ok(cu.cuStreamCreate(1)) for _ in range(2))
joined = ok(cu.cuEventCreate(2))
types = (None, None, None, ctypes.c_int)
def add(stream, x, y):
    ok(gpu.launch("vadd", (x, x, y, count), types, stream=stream, grid=4, block=256))
for _ in range(ITERATIONS):
    add(one, a, b)
    ok(cu.cuMemcpyHtoDAsync(a, address(host), 4 * count, one))
    add(other, c, d)
    add(other, c, d)
    add(one, a, b)
    ok(cu.cuEventRecord(joined, one))
    ok(cu.cuStreamWaitEvent(other, joined, 0))
    add(other, c, d)
    ok(cu.cuStreamSynchronize(other))
    tandem.step()
""".replace("ITERATIONS", str(ITERATIONS))


@pytest.fixture
def recorded(tandem, tmp_path):
    """The graph, its analysis, and (start, end, is it a kernel) of everything the device ran."""
    path = tmp_path / "x.trace"
    tandem("trace", "calls", "--device-times", "-o", path, "--", sys.executable, "-c", PROGRAM)
    window = from_trace(read(path), "x.trace")
    rows = [json.loads(line) for line in tandem.timeline.read_text().splitlines()]
    truth = sorted(
        (row["t_start_ns"], row["t_end_ns"], row["kind"] == "kernel")
        for row in rows
        if row["kind"] in {"kernel", "copy_htod"}
    )
    return window, analyse(build(window), 0, len(window.operations)), truth


def reconstructed(window, found):
    kinds = {OperationKind.LAUNCH, OperationKind.COPY}
    return sorted(
        (start, end, op.kind is OperationKind.LAUNCH)
        for op, start, end in zip(window.operations, found.starts_ns, found.ends_ns, strict=True)
        if op.kind in kinds
    )


def lengths(rows, counts):
    """Sum the intervals between neighbouring times, in ns, each times counts(kernels, copies)."""
    times = sorted({time for row in rows for time in row[:2]})
    total = 0
    for begin, end in pairwise(times):
        kinds = [kernel for start, stop, kernel in rows if start <= begin and end <= stop]
        total += (end - begin) * counts(kinds.count(True), kinds.count(False))
    return total


def overlap(rows):
    kernels = lengths(rows, lambda k, _: k)
    return (
        lengths(rows, lambda k, c: k if c else 0) / kernels,
        lengths(rows, lambda k, c: c if k else 0) / lengths(rows, lambda _, c: c),
        lengths(rows, lambda k, _: k if k > 1 else 0) / kernels,
        lengths(rows, lambda k, c: max(0, k + c - 1)) / lengths(rows, lambda k, c: k + c),
    )


@pytest.mark.slow
def test_reconstructed_times_and_overlap_are_those_of_the_device(recorded):
    window, found, truth = recorded
    assert (len(window.iterations), window.is_marked) == (ITERATIONS, True)

    mine = reconstructed(window, found)

    assert [row[2] for row in mine] == [row[2] for row in truth]
    for (start, end, _), (true_start, true_end, _) in zip(mine, truth, strict=True):
        assert start == pytest.approx(true_start, abs=TOLERANCE_NS)
        assert end == pytest.approx(true_end, abs=TOLERANCE_NS)
    shares = (found.overlap.ct, found.overlap.tc, found.overlap.cc, found.overlap.tot)
    assert shares == pytest.approx(overlap(truth), abs=TOLERANCE_RATIO)
    assert min(shares) > TOLERANCE_RATIO  # else there would be nothing to compare
