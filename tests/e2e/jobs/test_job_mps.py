"""Jobs on a GPU in mode mps that the daemon runs: parts of the SMs, and the effect of a crash."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from running_job import DEADLINE_S, until

from tandem._mps import is_running

SMS = 8  # of the profile `tiny`
CONTROL = "nvidia-cuda-mps-control"
PIPES = "CUDA_MPS_PIPE_DIRECTORY"


def ask(place, command, pipes="mps"):
    """Return the answer of MPS; ask again while it serves somebody else."""

    answers = []

    def is_heard():
        done = subprocess.run(
            [CONTROL],
            env=place.env | {PIPES: str(place.folder / pipes)},
            input=command,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        answers.append(done.stdout.strip())
        return "Cannot send command" not in done.stderr

    until(is_heard, what="an answer of mps")
    return answers[-1]


@pytest.fixture
def place(fresh_place):
    config = fresh_place.folder / "config.toml"
    config.write_text('[gpu."*"]\nmode = "mps"\n')
    fresh_place.start_daemon("--config", str(config))
    return fresh_place


def sms_of(place, job):
    job.do("waiting.short(gpu)")
    return {row["sms"] for row in place.ran(job.pid) if row["kind"] == "kernel"}


def test_jobs_use_the_part_of_the_sms_they_ask_for(place):
    whole = place.job("whole", "-p", "latency")
    by_count = place.job("by-count", "-p", "latency", "--sm", "2")
    by_percent = place.job("by-percent", "-p", "batch", "--sm", "50%", "--isolation", "mps")

    assert sms_of(place, whole) == {SMS}
    assert sms_of(place, by_count) == {2}
    assert sms_of(place, by_percent) == {4}
    assert by_percent.do("os.environ['CUDA_MPS_CLIENT_PRIORITY']") == "1"
    assert set(ask(place, f"get_client_list {ask(place, 'get_server_list')}").split()) == {
        str(job.pid) for job in (whole, by_count, by_percent)
    }
    told = place.explain("by-count")
    assert "sm 2 SMs: MPS lets it use 25% of the SMs, as set by `tandem run`" in told
    assert "MPS lets it use all SMs: it has no percentage" in place.explain("whole")
    assert "a fatal fault of one job ends all jobs of its user" in told
    with pytest.raises(
        AssertionError, match="is fixed while it runs, because its gpu is in mode mps"
    ):
        place.tandem("set", "by-count", "sm=4")


def test_a_job_on_one_of_the_gpus_that_mps_is_for_gets_that_one(fresh_place):
    # This MPS is given one GPU, which its clients see as GPU 0.
    place = fresh_place
    place.env["TANDEM_SOFTGPU_DEVICES"] = "2"
    config = place.folder / "config.toml"
    config.write_text('[gpu.1]\nmode = "mps"\n')
    place.start_daemon("--config", str(config))
    uuids = [gpu["uuid"] for gpu in json.loads(place.tandem("gpus", "--json"))]

    shared, alone = place.job("shared", "-i", "1"), place.job("alone", "-i", "0")

    shown = "os.environ['CUDA_VISIBLE_DEVICES']"
    assert (shared.do(shown), alone.do(shown)) == (uuids[1], "0")
    assert (shared.do("compute()"), alone.do("compute()")) == ([15], [15])
    assert ask(place, f"get_client_list {ask(place, 'get_server_list')}") == str(shared.pid)
    with place.client() as rpc:
        modes = {one.display_name: one.mode for one in rpc.jobs()}
    assert modes == {"shared": "mps", "alone": "time"}


def test_a_job_that_finds_no_mps_is_shown_as_it_is(place):
    # Nobody listens in the job's own pipe directory, so it silently runs without MPS.
    job = place.job("lost", "--sm", "50%", "--env", f"{PIPES}={place.folder / 'nowhere'}")
    client = place.job("found", "--sm", "50%")

    assert sms_of(place, job) == {SMS}
    assert sms_of(place, client) == {4}
    until(lambda: "it is not a client of mps" in place.explain("lost"), what="it is seen")

    assert "not a client of mps" not in place.explain("found")
    with place.client() as rpc:
        assert {one.display_name: (one.mode, one.sms) for one in rpc.jobs()} == {
            "lost": ("time", SMS),
            "found": ("mps", 4),
        }


def test_a_dry_run_shows_what_the_daemon_would_set_and_makes_no_job(place):
    shown = place.tandem("run", "--dry-run", "--sm", "50%", "-p", "batch", "--", "true").split()

    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50" in shown
    assert "CUDA_MPS_CLIENT_PRIORITY=1" in shown
    assert f"{PIPES}={place.folder / 'mps'}" in shown
    with place.client() as client:
        assert client.jobs(show_finished=True) == []


def test_a_jobs_own_word_about_mps_stands(place):
    own = place.job("own", "--sm", "50%", "--env", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25")

    assert sms_of(place, own) == {2}
    told = place.explain("own")
    assert (
        "MPS lets it use at most 25% of the SMs, because of its own "
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" in told
    )
    assert "PERCENTAGE, so sm 50% has no effect" in told
    with place.client() as client:
        assert client.job("own").sms == 2


@pytest.mark.slow
def test_after_a_crash_of_the_server_jobs_are_told_and_new_ones_run(place):
    victim = place.job("victim", "-p", "latency")
    server = int(ask(place, "get_server_list"))
    until(lambda: f"server={server}" in (place.folder / "log").read_text(), what="a look")

    os.kill(server, signal.SIGKILL)
    until(lambda: "has ended" in place.explain("victim"), what="it is told")

    assert victim.do("cu.cuMemAlloc(16)[0].name").startswith("CUDA_ERROR_MPS")
    assert place.job("next", "-p", "latency").do("compute()") == [15]


def test_a_mode_that_is_configured_and_not_had_is_told(fresh_place):
    config = fresh_place.folder / "config.toml"
    config.write_text('[gpu."*"]\nmode = "mps+green"\n')
    search = fresh_place.env["PATH"].split(os.pathsep)
    without = [folder for folder in search if not Path(folder, CONTROL).exists()]
    fresh_place.env["PATH"] = os.pathsep.join(without)
    fresh_place.start_daemon("--config", str(config))

    why = f"no mode mps+green: no {CONTROL} on the PATH"

    assert f"gpu 0: {why}" in fresh_place.tandem("gpus")
    doctor = [sys.executable, "-m", "tandem.cli", "doctor", "--json"]
    told = subprocess.run(
        doctor, env=fresh_place.env, stdout=subprocess.PIPE, timeout=DEADLINE_S, check=False
    )
    found = {one["check"]: one for one in json.loads(told.stdout)}["gpu 0"]
    assert found["level"] == "warn"
    assert found["text"] == f"not in the configured mode: {why}"


@pytest.mark.slow
def test_mps_that_was_left_for_a_job_is_ended_after_it_though_nobody_wants_mps_now(place):
    job, mark = place.job("long", "-p", "latency"), place.folder / "mps" / "started-by-tandemd"
    control = int(mark.read_text())
    place.stop_daemon()
    place.start_daemon(*place.configured(policy="'fair'"))

    runs_on = job.do("compute()")
    was_left = is_running(control)
    job.end()
    until(lambda: not is_running(control), what="the end of mps")

    assert runs_on == [15]
    assert was_left


@pytest.mark.slow
def test_mps_that_was_found_and_ends_is_used_no_more(fresh_place):
    place, theirs = fresh_place, fresh_place.folder / "theirs"
    place.env |= {PIPES: str(theirs), "CUDA_MPS_LOG_DIRECTORY": str(theirs)}
    subprocess.run([CONTROL, "-d"], env=place.env, check=True, timeout=DEADLINE_S)
    place.start_daemon()
    job = place.job("victim", "--isolation", "mps")
    place.job("ended").end()

    ask(place, "quit -t 0", "theirs")
    until(lambda: "mode time" in place.explain("victim"), what="it is noticed")

    assert job.do("cu.cuMemAlloc(16)[0].name").startswith("CUDA_ERROR_MPS")
    assert "the control daemon of mps has ended" in place.explain("victim")
    assert "is in mode time" in place.refused("--require", "--isolation", "mps")[1]


def test_sets_are_proved_under_the_mps_that_a_daemon_of_virtual_time_runs(fresh_place):
    fresh_place.env["TANDEM_SOFTGPU_PROFILE"] = "h200"
    config = fresh_place.folder / "config.toml"
    config.write_text('[gpu."*"]\nmode = "mps+green"\n')
    fresh_place.start_daemon("--config", str(config))

    with fresh_place.client() as client:
        [gpu] = client.partitions()
    assert gpu.gpu.mode == "mps+green"
