"""Made-up worker reports for the tests of figures, report and trace."""

from pathlib import Path

from tandem.demo.measure import Outcome, Span, WorkerReport
from tandem.demo.place import Place

MS = 1_000_000


def server(*latencies_ms, pid=1, start_ns=0, correct=True):
    """Requests that arrive every 100 ms and are served at once."""
    items = tuple(
        {
            "arrival_ns": i * 100 * MS,
            "begin_ns": i * 100 * MS,
            "end_ns": i * 100 * MS + int(latency * MS),
            "correct": correct,
        }
        for i, latency in enumerate(latencies_ms)
    )
    return WorkerReport(role="server", pid=pid, exit_code=0, start_ns=start_ns, items=items)


def trainer(role, *, iterations, each_ms, pid=2, start_ns=0, correct=True, exit_code=0):
    """Iterations that follow each other without gaps."""
    items = tuple(
        {"begin_ns": i * each_ms * MS, "end_ns": (i + 1) * each_ms * MS, "correct": correct}
        for i in range(iterations)
    )
    return WorkerReport(role=role, pid=pid, exit_code=exit_code, start_ns=start_ns, items=items)


def kernel(start_ms, end_ms, *, pid, stream=7, kind="kernel"):
    return Span(
        start_ns=int(start_ms * MS),
        end_ns=int(end_ms * MS),
        pid=pid,
        stream=stream,
        kind=kind,
        name="affine" if kind == "kernel" else "",
    )


def outcome(name, *workers, window_ms=1000, spans=()):
    return Outcome(name=name, window_ns=window_ms * MS, workers=workers, spans=tuple(spans))


def place(**changes):
    fields = {
        "name": "Tandem Software GPU (tiny)",
        "kind": "software",
        "mode": "time",
        "clock": "virtual",
        "image": Path("kernels.so"),
        "base_env": {},
    }
    return Place(**{**fields, **changes})
