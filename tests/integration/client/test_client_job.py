"""`tandem.job` in programs under the shim, with the real daemon and on the real clock."""

import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

import tandem as tandem_package
from tandem import softgpu

DEADLINE_S = 30
PROGRAM = """
import sys
import tandem
from cuda.bindings import driver as cu
def ok(answer):
    assert answer[0] == 0, answer
    return answer[1] if len(answer) > 1 else None
def say(word): print(word, flush=True)
ok(cu.cuInit(0))
context = ok(cu.cuDevicePrimaryCtxRetain(0))
def here(): ok(cu.cuCtxSetCurrent(context))  # callbacks are called on another thread
here()
held = ok(cu.cuMemAlloc(16))
def save():
    here(); ok(cu.cuMemsetD8(held, 7, 16)); ok(cu.cuCtxSynchronize()); say("saved")
def wait():
    here()
    while True:
        ok(cu.cuMemsetD8(held, 8, 16)); ok(cu.cuCtxSynchronize())
def fail(): say("fails"); raise RuntimeError("as meant")
"""
BLOCK = (
    PROGRAM
    + """
with tandem.job(priority="batch", memory="64MiB", slo="p99=50ms") as job:
    job.on_pause(fail); job.on_pause(save); job.on_resume(lambda: say("warm"))
    stats = job.stats(); say((job.name, stats.priority, stats.memory_quota_bytes))
    sys.stdin.readline()
stats = job.stats(); say((stats.priority, stats.memory_quota_bytes, stats.slo_p99_ns))
sys.stdin.readline()
"""
)
STUBBORN = (
    PROGRAM + "job = tandem.job().__enter__(); job.on_pause(wait); say('in'); sys.stdin.read()"
)
SLOW = (
    PROGRAM
    + """
def slow(): say("begun"); sys.stdin.readline(); save()
job = tandem.job().__enter__(); job.on_pause(slow); job.on_resume(lambda: say("warm"))
say("in"); __import__("time").sleep(3600)
"""
)
SILENT = PROGRAM + "say('in'); sys.stdin.read()"
LEAVES = (
    PROGRAM + "job = tandem.job().__enter__(); job.on_pause(sys.exit); say('in'); sys.stdin.read()"
)
UNSAID = (
    PROGRAM
    + """
def has():
    now = tandem.job().__enter__().stats()
    return now.preemptible, now.memory_quota_bytes, now.memory_percent
before = has()
with tandem.job(preemptible=False, memory="1MiB"): say("in"); sys.stdin.readline()
say((before, has()))
"""
)
AWAY = (
    PROGRAM
    + """
say("ready"); sys.stdin.readline()
with tandem.job(priority="batch"): say("in"); sys.stdin.readline()
say("out")
"""
)


@pytest.fixture
def environ(environ, runtime_dir):
    """An environment with a GPU on which time passes by itself."""
    folder = runtime_dir / "gpu"
    folder.mkdir(mode=0o700)
    return softgpu.environment(environ, folder=folder, clock="real", profile="tiny")


class Program:
    """A program under `tandem run`."""

    def __init__(self, text, environ, *options):
        words = ["run", "--require", *options, "--", sys.executable, "-c", text]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tandem.cli.__main__", *words],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def says(self):
        line = self._process.stdout.readline().strip()
        assert line, self._process.communicate(timeout=DEADLINE_S)[1]
        return line

    def go_on(self):
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self):
        """End the program; return its last output and its stderr."""
        return self._process.communicate(timeout=DEADLINE_S)

    def kill(self):
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def start(daemon, environ):
    programs = []

    def start(text, *options):
        programs.append(Program(text, environ, *options))
        return programs[-1]

    yield start
    for program in programs:
        program.kill()


def await_listener(client, name):
    end_s = time.monotonic() + DEADLINE_S
    while not any("before a pause, 1 program" in line for line in client.explain(name).lines):
        assert time.monotonic() < end_s
        time.sleep(0.01)


def await_return(client):
    end_s = time.monotonic() + DEADLINE_S
    while not any(job.processes for job in client.jobs()):
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_a_block_has_what_it_asks_for_and_the_job_what_it_had_before(client, start):
    program = start(BLOCK, "-J", "trainer", "-m", "128MiB")
    name, priority, memory = eval(program.says())

    (job,) = client.jobs()
    assert (job.name, job.priority, job.memory_quota_bytes) == (name, "batch", 64 << 20)
    assert (priority, memory, job.slo_p99_ns) == ("batch", 64 << 20, 50_000_000)
    program.go_on()

    assert eval(program.says()) == ("normal", 128 << 20, None)


def test_what_a_program_does_before_a_pause_is_waited_for(client, start, tandem):
    program = start(BLOCK, "-J", "trainer")
    program.says()
    await_listener(client, "trainer")

    paused = tandem("pause", "trainer")

    assert paused.returncode == 0, paused.stderr
    assert [program.says(), program.says()] == ["fails", "saved"]
    assert paused.stdout.endswith("is paused\n")
    assert client.job("trainer").state == "paused"
    kinds = [event.kind for event in client.events()]
    assert kinds.index("pausing") < kinds.index("paused")
    client.resume("trainer")
    assert program.says() == "warm"
    program.go_on()
    program.says()
    assert program.end()[1].count("RuntimeError: as meant") == 1


def test_a_program_is_waited_for_until_all_its_blocks_are_ready(client, start, tandem):
    twice = BLOCK.replace("    job.on_pause(fail);", "    tandem.job().__enter__().on_pause(fail);")
    program = start(twice, "-J", "trainer")
    program.says()
    await_listener(client, "trainer")

    assert tandem("pause", "trainer").returncode == 0

    assert [program.says(), program.says()] == ["fails", "saved"]  # saving needs the GPU


def test_a_program_of_a_group_does_what_it_wants_before_the_group_is_held(client, start, tandem):
    listening = start(BLOCK, "-J", "listening", "-G", "team")
    listening.says()
    start(SILENT, "-J", "silent", "-G", "team").says()
    await_listener(client, "listening")

    paused = tandem("pause", "-G", "team")

    assert paused.returncode == 0, paused.stderr
    assert [listening.says(), listening.says()] == ["fails", "saved"]
    assert {job.state for job in client.jobs()} == {"paused"}


def test_a_program_that_exits_in_its_callback_is_waited_for_no_longer(client, start, tandem):
    start(LEAVES, "-J", "leaves").says()
    await_listener(client, "leaves")

    assert tandem("pause", "--grace", "1h", "leaves").returncode == 0


def test_who_waits_for_a_pause_that_is_taken_back_is_told_so(client, start, tandem):
    start(STUBBORN, "-J", "stubborn").says()
    await_listener(client, "stubborn")

    with ThreadPoolExecutor(1) as pool, closing(client.watch(deadline_s=DEADLINE_S)) as events:
        waiting = pool.submit(tandem, "pause", "--grace", "1h", "stubborn")
        while next(events).kind != "pausing":
            pass
        client.resume("stubborn")
        paused = waiting.result(DEADLINE_S)

    assert paused.returncode == 4, paused.stderr
    assert "is not held: it is" in paused.stderr


def test_what_somebody_changed_within_the_block_stays(client, start):
    program = start(BLOCK, "-J", "trainer", "-m", "128MiB")
    program.says()
    client.set("trainer", memory="96MiB")
    program.go_on()

    assert eval(program.says()) == ("normal", 96 << 20, None)


def test_what_was_not_said_is_not_said_behind_the_block(client, start):
    program = start(UNSAID, "-J", "trainer", "-m", "50%")

    program.says()
    assert client.job("trainer").preemptible is False
    program.go_on()

    before, after = eval(program.says())
    assert before == after


@pytest.mark.parametrize("gone", ["before", "within"])
def test_a_daemon_that_is_gone_changes_nothing_of_how_the_program_runs(daemon, start, gone):
    program = start(AWAY, "-J", "trainer")
    program.says()
    if gone == "before":
        daemon.stop()
    program.go_on()
    assert program.says() == "in"
    if gone == "within":
        daemon.stop()
    program.go_on()

    assert program.says() == "out"
    assert "tandem.job changes nothing" in program.end()[1]


def test_a_daemon_that_is_started_anew_within_the_grace_waits_for_what_is_under_way(
    client, daemon, start
):
    program = start(SLOW, "-J", "slow")
    program.says()
    await_listener(client, "slow")
    client.pause("slow", grace_s=3600)
    assert program.says() == "begun"

    daemon.kill()
    daemon.start()
    await_return(client)
    assert client.job("slow").pause_in_ns is not None
    program.go_on()

    assert program.says() == "saved"  # saving takes the GPU before the job is held
    (job,) = client.wait("slow", until="paused", deadline_s=DEADLINE_S)
    assert job.pause_unready == 0
    client.resume("slow")
    assert program.says() == "warm"


def test_who_pauses_is_told_of_programs_that_were_not_ready(client, start, tandem):
    start(STUBBORN, "-J", "stubborn").says()
    await_listener(client, "stubborn")

    paused = tandem("pause", "--grace", "100ms", "stubborn")

    assert paused.returncode == 0
    assert "1 of its programs did not get ready for the pause" in paused.stderr
    assert client.job("stubborn").pause_unready == 1


def test_a_program_that_does_not_get_ready_is_held_when_the_grace_is_over(client, start, tandem):
    program = start(STUBBORN, "-J", "stubborn")
    program.says()
    await_listener(client, "stubborn")

    at_once = tandem("pause", "--grace", "1min", "--no-wait", "stubborn")
    told = client.job("stubborn")
    paused = tandem("pause", "--grace", "100ms", "stubborn")

    assert "is to be paused: 1 program can prepare for it" in at_once.stdout
    assert told.state != "paused"
    assert 0 < told.pause_in_ns <= 60 * 10**9
    assert paused.stdout.endswith("is paused\n")


def test_a_pause_can_be_taken_back_before_the_program_is_ready(client, start):
    program = start(STUBBORN, "-J", "stubborn")
    program.says()
    await_listener(client, "stubborn")

    told = client.pause("stubborn", grace_s=60)
    resumed = client.resume("stubborn")

    assert told.pause_in_ns is not None
    assert (resumed.pause_in_ns, resumed.state == "paused") == (None, False)


def test_outside_a_job_a_block_warns_once_and_does_nothing():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with tandem_package.job(priority="batch") as job:
            job.on_pause(lambda: None)
            assert (job.name, job.stats()) == (None, None)

    assert [str(one.message).split(":")[0] for one in told] == ["tandem.job changes nothing"]


def test_a_block_is_entered_once():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        block = tandem_package.job()
        with block:
            pass
        with pytest.raises(tandem_package.StateError, match="entered only once"):
            block.__enter__()


@pytest.mark.parametrize("what", ["on_pause", "on_resume", "on_memory_pressure"])
def test_what_cannot_be_called_is_refused(what):
    with pytest.raises(TypeError, match="3 cannot be"):
        getattr(tandem_package.job(), what)(3)
