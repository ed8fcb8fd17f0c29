"""The daemon finds the iterations of the demo's trainers, which mark none."""

import re

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PATIENCE_S = 60
FOUND = re.compile(r"iterations found in what it submits: (\d+) ms and (\d+) launches each")


def test_the_iterations_of_a_trainer_are_found(lab, tmp_path, tandem):
    with lab.scenario("iterations", folder=tmp_path, roles=["vision", "language"]) as scenario:
        scenario.start()
        trainer = scenario.workers["vision"]
        trainer.wait_for("progress", deadline_s=PATIENCE_S, done=6)
        found = {}
        for job in tandem(scenario, "ps"):
            explained = tandem(scenario, "explain", job["name"])
            (pid,) = [process["pid"] for process in job["processes"]]
            found[pid] = FOUND.search(str(explained))
        outcome = scenario.finish()

    for role in ("vision", "language"):
        worker = scenario.workers[role]
        told = found[worker.pid]
        assert told, f"nothing was found of {role}"
        items = outcome.worker(role).items
        usual_ms = (items[3]["end_ns"] - items[3]["begin_ns"]) / 1e6
        assert int(told[1]) == pytest.approx(usual_ms, rel=0.1)
