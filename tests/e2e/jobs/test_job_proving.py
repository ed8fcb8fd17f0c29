"""Jobs that come while the daemon proves that sets of SMs are disjoint, and what it reports."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from running_job import DEADLINE_S, until

HELD = """
import os, sys

def hold(name):
    with open(f"{path}.{{name}}.new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(f"{path}.{{name}}.new", f"{path}.{{name}}")
    with open({path!r}) as pipe:
        return pipe.read()

if "tandem._set_probe" in sys.orig_argv[1:4]:
    word = hold("probe")
    if word == "die":
        os._exit(1)
    if word == "hold the two":
        os.environ["HELD"] = "1"
if "tandem._set_holder" in sys.orig_argv[1:4] and "HELD" in os.environ:
    hold("client" + sys.orig_argv[3])
"""
CLIENTS = ("client0", "client1")
LAUNCH_FAILED = 125
SPREADING = "__import__('spreading')"


class Held:
    """A proof that continues when the test says so."""

    def __init__(self, place):
        self._path = place.folder / "held"
        os.mkfifo(self._path)
        programs = place.folder / "held-programs"
        programs.mkdir()
        (programs / "sitecustomize.py").write_text(HELD.format(path=str(self._path)))
        self._temporary = place.folder / "tmp"
        self._temporary.mkdir()
        place.env["TMPDIR"] = str(self._temporary)
        place.env["PYTHONPATH"] = f"{programs}:{place.env['PYTHONPATH']}"

    def is_there(self, who="probe"):
        try:
            return Path(f"/proc/{Path(f'{self._path}.{who}').read_text()}").exists()
        except FileNotFoundError:
            return False

    def leftovers(self):
        return list(self._temporary.iterdir())

    def says(self, word):
        with open(self._path, "w") as pipe:
            pipe.write(word)

    def end(self):
        """End a proof that waits for a word; it would wait for ever."""
        with suppress(OSError):  # nobody waits
            pipe = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK)
            os.write(pipe, b"die")
            os.close(pipe)


@pytest.fixture(params=["real"])
def place(fresh_place):
    fresh_place.env |= {"TANDEM_SOFTGPU_MODE": "mps", "TANDEM_SOFTGPU_PROFILE": "h200"}
    config = fresh_place.folder / "config.toml"
    config.write_text('[gpu."*"]\nmode = "mps+green"\n')
    fresh_place.held = Held(fresh_place)
    fresh_place.start_daemon("--config", str(config))
    yield fresh_place
    fresh_place.close()  # before the proof ends, else the daemon would start another
    fresh_place.held.end()


def line_of(process):
    """Return the next line of the process's stderr."""
    return process.stderr.readline()


def waiting_job(place, *options):
    """Start a job that prints the percentage of the SMs it may use at most."""
    words = "import os; print(os.environ.get('CUDA_MPS_ACTIVE_THREAD_PERCENTAGE', 'all'))"
    tandem = [sys.executable, "-m", "tandem.cli", "run", "--require", *options]
    return subprocess.Popen(
        [*tandem, "--", sys.executable, "-c", words],
        env=place.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_daemon_takes_jobs_at_once_and_they_get_their_sets_later(place):
    job = place.job("a", "-p", "latency")
    assert job.do(f"{SPREADING}.begin(gpu)") is None
    assert job.do(f"{SPREADING}.run(1)")
    assert "gpu 0: mode mps+green is being proved" in place.tandem("gpus")
    told = place.explain("a")
    assert "mode mps+green is being proved on gpu 0, which is in mode mps until then" in told
    assert "its set is" not in told

    place.held.says("go")

    until(lambda: "its set is 128 SMs" in place.explain("a"), what="it has a set")
    until(lambda: "streams in it: 2" in place.explain("a"), what="it is in its set")
    assert "being proved" not in place.tandem("gpus")
    assert "works: 16 groups of 8 SMs, and disjoint sets share none (proved by the daemon)" in (
        place.tandem("doctor")
    )
    with place.client() as client:
        (gpu,) = client.gpus()
    assert (gpu.mode, gpu.sets.groups, gpu.sets.group_sms) == ("mps+green", 16, 8)


def test_who_asks_for_sms_waits_for_what_comes_out(place):
    with waiting_job(place, "--sm", "50%", "--isolation", "mps+green") as job:
        assert line_of(job) == "tandem: waiting: mode mps+green is being proved on gpu 0\n"
        assert job.poll() is None

        place.held.says("go")

        out, more = job.communicate(timeout=DEADLINE_S)
        assert (job.returncode, out, more) == (0, "all\n", "")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--sm", "500"], "it asks for 500 SMs, but gpu 0 has 132"),
        (["-i", "9", "--sm", "30%"], "no gpu is called '9'"),
    ],
)
def test_who_asks_for_what_there_never_is_does_not_wait(place, options, why):
    with waiting_job(place, *options) as job:
        assert why in line_of(job)

        job.communicate(timeout=DEADLINE_S)
        assert job.returncode == LAUNCH_FAILED


def test_without_an_answer_it_is_tried_again_and_jobs_have_percentages_until_then(place):
    with waiting_job(place, "--sm", "50%") as job:
        line_of(job)
        place.held.says("die")
        assert job.communicate(timeout=DEADLINE_S)[0] == "50\n"
    assert "no mode mps+green yet: the probe failed" in place.tandem("gpus")

    place.daemon.send_signal(signal.SIGHUP)  # makes the daemon try again soon
    until(lambda: "is being proved" in place.tandem("gpus"), what="it is tried again")
    place.held.says("go")

    until(lambda: "  mps+green  " in place.tandem("gpus"), what="it is proved")


def test_what_was_proved_holds_for_the_next_daemon(place):
    place.held.says("go")
    until(lambda: "  mps+green  " in place.tandem("gpus"), what="it is proved")

    place.stop_daemon()
    place.start_daemon("--config", str(place.folder / "config.toml"))

    assert "  mps+green  " in place.tandem("gpus")  # a probe would be held here


def test_a_proof_ends_with_the_daemon_and_leaves_nothing_behind(place):
    place.held.says("hold the two")
    until(lambda: all(map(place.held.is_there, CLIENTS)), what="both are clients")
    assert place.held.leftovers()

    assert place.stop_daemon() == 0

    assert not any(map(place.held.is_there, ("probe", *CLIENTS)))
    assert not place.held.leftovers()
