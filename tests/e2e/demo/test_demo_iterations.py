"""The daemon finds the iterations of the demo's trainers, which mark none."""

import re

import pytest

from tandem import Client
from tandem._native import OperationKind, RecordedOperations

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PATIENCE_S = 60
LAUNCH = OperationKind.LAUNCH
FOUND = re.compile(r"iterations found in what it submits: (\d+) ms and (\d+) launches each")


def explained(client, job):
    return str(client.explain(job.name))


def test_the_iterations_of_a_trainer_are_found(lab, tmp_path):
    roles = ["vision", "language"]
    with lab.scenario("iterations", folder=tmp_path, roles=roles, seconds=60) as scenario:
        scenario.start()
        trainer = scenario.workers["vision"]
        trainer.wait_for("progress", deadline_s=PATIENCE_S, done=6)
        with Client(directory=str(scenario.runtime_dir)) as client:
            jobs = client.jobs()
            found = {job.processes[0].pid: FOUND.search(explained(client, job)) for job in jobs}
            recorded = [
                window for job in jobs for window in client.windows(job.name, patience_s=30)
            ]
            structures = [explained(client, job) for job in jobs]
        windows = {window.pid: window for window in recorded}
        outcome = scenario.finish(now=True)

    assert [len(job.processes) for job in jobs] == [1, 1]
    assert all("hang on the gpu for" in structure for structure in structures)
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
