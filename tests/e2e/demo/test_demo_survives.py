"""What dies or hangs while the main job runs, and what keeps running."""

import signal

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# Virtual seconds. A hung daemon is given up after 2.1 of them; `tandem` commands take real time.
SHORT, LONG = 4.0, 18.0
PATIENCE_S = 60


def scheduled_pids(tandem, scenario):
    """Return the pids of attached processes whose jobs were charged GPU time."""
    jobs = [job for job in tandem(scenario, "ps") if job["gpu_time_ns"] > 0]
    return {process["pid"] for job in jobs for process in job["processes"]}


def pids(scenario, *roles):
    return {scenario.workers[role].pid for role in roles}


def wait_until(condition, *, worker, step):
    """Let the worker finish `step` items at a time until the condition holds."""
    done = 0
    while not condition():
        message = worker.wait_for("progress", deadline_s=PATIENCE_S, done=done + step)
        done = message["done"]


def test_jobs_finish_right_when_the_daemon_is_killed(lab, tmp_path):
    with lab.scenario("killed", folder=tmp_path, seconds=SHORT) as scenario:
        scenario.start()
        scenario.workers["server"].wait_for("progress", deadline_s=PATIENCE_S, done=20)

        scenario.daemon.send(signal.SIGKILL)

        assert all(w.all_correct for w in scenario.finish().workers)


def test_jobs_attach_to_a_restarted_daemon(lab, tmp_path, tandem):
    with lab.scenario("restarted", folder=tmp_path, seconds=LONG) as scenario:
        scenario.start()
        server = scenario.workers["server"]
        server.wait_for("progress", deadline_s=PATIENCE_S, done=20)
        scenario.daemon.send(signal.SIGKILL)
        scenario.daemon.wait(deadline_s=10)
        server.wait_for("progress", deadline_s=PATIENCE_S, done=60)

        scenario.start_daemon()

        everybody = pids(scenario, "server", "vision", "language")
        wait_until(lambda: scheduled_pids(tandem, scenario) == everybody, worker=server, step=20)
        assert all(w.all_correct for w in scenario.finish().workers)


def test_jobs_finish_right_when_the_daemon_hangs(lab, tmp_path):
    with lab.scenario("stopped", folder=tmp_path, seconds=SHORT) as scenario:
        scenario.start()
        scenario.workers["server"].wait_for("progress", deadline_s=PATIENCE_S, done=20)

        scenario.daemon.send(signal.SIGSTOP)

        assert all(w.all_correct for w in scenario.finish().workers)


def clients(status):
    return [client["pid"] for client in status["clients"]]


def test_a_killed_trainer_is_forgotten_and_its_memory_is_back(lab, tmp_path, tandem):
    with lab.scenario("one-killed", folder=tmp_path, seconds=LONG) as scenario:
        scenario.start()
        server, victim = scenario.workers["server"], scenario.workers["vision"]
        victim.wait_for("progress", deadline_s=PATIENCE_S, done=2)
        before = tandem(scenario, "softgpu", "status")

        victim.send(signal.SIGKILL)

        others = pids(scenario, "server", "language")
        wait_until(lambda: scheduled_pids(tandem, scenario) == others, worker=server, step=20)
        after = tandem(scenario, "softgpu", "status")
        assert victim.pid in clients(before)
        assert victim.pid not in clients(after)
        outcome = scenario.finish(expect_alive=["server", "language"])
        assert all(w.all_correct for w in outcome.workers)
