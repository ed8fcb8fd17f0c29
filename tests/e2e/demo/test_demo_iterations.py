"""The daemon finds the iterations of the demo's trainers, which mark none."""

import os
import re
import signal
from contextlib import contextmanager

import pytest

from tandem import Client
from tandem._native import OperationKind, RecordedOperations

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PATIENCE_S = 60
LAUNCH = OperationKind.LAUNCH
FOUND = re.compile(r"iterations found in what it submits: (\d+) ms and (\d+) launches each")


def record(scenario, pids):
    with Client(directory=str(scenario.runtime_dir)) as client:
        jobs = client.jobs()
        windows = [window for job in jobs for window in client.windows(job.name, patience_s=30)]
    return {window.pid: window for window in windows if window.pid in pids}


@contextmanager
def stopped(workers):
    """Stop the workers. Virtual time stands still, so none ends before the test has asked."""
    for worker in workers:
        os.kill(worker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for worker in workers:
            os.kill(worker.pid, signal.SIGCONT)


def test_the_iterations_of_a_trainer_are_found(lab, tmp_path, tandem):
    with lab.scenario("iterations", folder=tmp_path, roles=["vision", "language"]) as scenario:
        scenario.start()
        trainer = scenario.workers["vision"]
        trainer.wait_for("progress", deadline_s=PATIENCE_S, done=6)
        trainers, found = list(scenario.workers.values()), {}
        with stopped(trainers):
            for job in tandem(scenario, "ps"):
                explained = tandem(scenario, "explain", job["name"])
                (pid,) = [process["pid"] for process in job["processes"]]
                found[pid] = FOUND.search(str(explained))
        windows = record(scenario, found)
        with stopped(trainers):
            structures = [
                str(tandem(scenario, "explain", job["name"])) for job in tandem(scenario, "ps")
            ]
        outcome = scenario.finish()

    assert len(structures) == 2
    assert all("depend on the gpu for" in structure for structure in structures)
    for role in ("vision", "language"):
        worker = scenario.workers[role]
        told = found[worker.pid]
        assert told, f"nothing was found of {role}"
        items = outcome.worker(role).items
        usual_ms = (items[3]["end_ns"] - items[3]["begin_ns"]) / 1e6
        assert int(told[1]) == pytest.approx(usual_ms, rel=0.1)
        window = windows[worker.pid]
        operations = RecordedOperations(window.records).operations
        launched = [operation.object for operation in operations if operation.kind is LAUNCH]
        assert len(launched) == window.iterations * int(told[2])
        assert set(launched) <= {handle for handle, _ in window.kernels}
        assert len(window.launches) == len(launched)
        assert all(memory.accesses for memory in window.launches.values())
