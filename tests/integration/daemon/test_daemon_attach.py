import fcntl
import os
import signal
import stat
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from fake_shim import (
    BATCH,
    CLASS_OFFSET,
    FEATURE_SWAP,
    FLAG_RELEASED,
    FLAGS_OFFSET,
    HELLO,
    LATENCY,
    MAPPED,
    NO,
    NORMAL,
    PATIENCE_S,
    PRESENCE,
    PRESENCE_GONE,
    REFUSED,
    REGISTERED,
    SHARED,
    USES,
    VIRTUAL,
    WELCOME,
    WINDOW_OFFSET,
    YES,
    hello,
    packet,
    register,
)
from running_daemon import until

from tandem import _attach, _doctor
from tandem._paths import RuntimeDir
from tandem._wire import tandem_pb2 as pb

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another uid")
NOBODY = 65534


def test_a_shim_gets_three_sealed_pages_that_nobody_else_can_open(daemon):
    shim = daemon.start().shim()

    for fd in shim.fds:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o600
        assert seals & fcntl.F_SEAL_SHRINK
        assert seals & fcntl.F_SEAL_GROW
    assert not shim.is_held


def test_best_effort_is_shown_the_presence_of_a_latency_process_and_loses_it_with_it(daemon):
    batch = daemon.start().shim(job_class=BATCH)
    latency = daemon.shim(job_class=LATENCY)

    kind, body, fds = batch.receive()
    assert (kind, struct.unpack("=II", body), len(fds)) == (PRESENCE, (0, LATENCY), 1)
    until(lambda: batch.presence_mask == 1, what="the mask names the presence entry")
    latency.close()

    assert batch.receive()[0] == PRESENCE_GONE
    until(lambda: batch.presence_mask == 0, what="the mask is empty again")


def test_a_newcomer_is_welcomed_before_it_is_shown_its_peers(daemon):
    latency = daemon.start().shim(job_class=LATENCY)
    with daemon.rpc() as rpc:  # the answer comes after the MAPPED that was sent before
        until(lambda: len(rpc.jobs()) == 1, what="the latency process is known")

    batch = daemon.shim(job_class=BATCH)  # asserts that the first packet is WELCOME

    kind, body, fds = batch.receive()
    assert (kind, struct.unpack("=II", body), len(fds)) == (PRESENCE, (0, LATENCY), 1)
    until(lambda: batch.presence_mask == 1, what="the mask names the presence entry")
    assert not latency.is_held


def test_a_process_in_virtual_time_is_refused_by_a_daemon_in_real_time(daemon):
    _, reason = daemon.start().connect().refusal(hello(clock=VIRTUAL))

    assert "start tandemd with --clock softgpu" in reason


@pytest.mark.parametrize(
    ("job_class", "swappable", "moves"),
    [(BATCH, 0, True), (BATCH, NO, False), (NORMAL, 0, False), (NORMAL, YES, True)],
)
def test_memory_of_a_class_is_swapped_as_the_configuration_says_unless_the_job_does(
    daemon, job_class, swappable, moves
):
    config = daemon.base / "config.toml"
    config.write_text("[class.batch]\nmemory_swap = true\n")

    shim = daemon.start("--config", str(config)).shim(job_class=job_class, swappable=swappable)

    assert bool(shim.features & FEATURE_SWAP) is moves


def test_best_effort_is_windowed_while_it_shares_the_gpu(daemon):
    batch = daemon.start().shim(job_class=BATCH)
    assert batch.word(WINDOW_OFFSET) == 0

    daemon.shim(job_class=LATENCY)

    assert batch.word(WINDOW_OFFSET) == 2


def test_two_at_work_take_turns(daemon):
    first = daemon.start("--policy", "fifo").shim(job_class=BATCH)
    second = daemon.shim(job_class=BATCH)
    first.work(busy=True)
    second.work(busy=False, waiting=True)
    until(lambda: second.is_held, what="the second is held")
    assert not first.is_held

    first.work(busy=False)

    until(lambda: not second.is_held, what="the second has its turn")


def test_processes_that_share_something_are_held_and_released_as_one(daemon):
    first, second, rival = daemon.start().shim(), daemon.shim(), daemon.shim()
    first.share(7)
    second.share(7)
    with daemon.rpc() as rpc:
        until(lambda: "which share memory" in explained(rpc, first), what="they are one group")
        rival.work(busy=True)
        until(lambda: first.is_held and second.is_held, what="both are held")

        rival.work(busy=False)
        second.work(busy=False, waiting=True)

        until(lambda: not first.is_held and not second.is_held, what="both go on")
        assert f"j-{second.job_id:x}" in explained(rpc, first)


def explained(rpc, shim):
    request = pb.JobName(name=f"j-{shim.job_id:x}")
    return "\n".join(rpc.call(rpc.job_service.ExplainJob, request).lines)


def test_a_process_on_two_gpus_is_held_with_those_of_each(daemon):
    one, two = bytes(range(16)), bytes(range(16, 32))
    first, second = daemon.start().shim(devices=[one]), daemon.shim(devices=[two])
    both = daemon.shim(devices=[one])
    both.use(two)
    with daemon.rpc() as rpc:
        until(
            lambda: sorted(job.gpu for job in rpc.jobs()) == ["0", "0,1", "1"], what="it is known"
        )
    second.work(busy=True)

    until(lambda: both.is_held and first.is_held, what="one turn on both")


@pytest.mark.parametrize("message", [packet(SHARED, b"\1" * 8), packet(USES, bytes(16))])
def test_a_launcher_shares_nothing(daemon, message):
    launcher = daemon.start().connect()
    launcher.socket.send(register())
    assert launcher.receive()[0] == REGISTERED

    assert "without HELLO" in launcher.refusal(message)[1]


def test_latency_is_not_held_while_best_effort_works(daemon):
    batch = daemon.start().shim(job_class=BATCH)
    other = daemon.shim(job_class=BATCH)
    latency = daemon.shim(job_class=LATENCY)
    latency.work(busy=True)
    batch.work(busy=True)
    other.work(busy=False, waiting=True)

    until(lambda: batch.is_held or other.is_held, what="best effort takes turns")

    assert not latency.is_held


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"garbage", "7"),
        (bytes(472), "magic"),
        (hello()[:100], "100"),
        (packet(99, bytes(100)), "99"),
        (packet(HELLO), "16"),
        (packet(MAPPED), "HELLO"),
        (os.urandom(4096), "magic"),
    ],
)
def test_garbage_is_refused_with_a_reason_and_the_daemon_goes_on(daemon, data, words):
    daemon.start()

    code, reason = daemon.connect().refusal(data)

    assert code in (1, 2)
    assert words in reason
    assert not daemon.shim().is_held


def test_another_protocol_is_refused_as_such(daemon):
    code, reason = daemon.start().connect().refusal(hello(version=9))

    assert (code, "9" in reason) == (1, True)


def test_another_layout_is_refused_as_such(daemon):
    code, reason = daemon.start().connect().refusal(hello(layouts=(7, 8)))

    assert (code, "layouts 7 to 8" in reason) == (1, True)


def test_a_job_is_told_that_a_process_of_it_was_refused(daemon):
    first = daemon.start().shim(job_id=7)

    daemon.connect().refusal(hello(job_id=7, layouts=(7, 8)))

    with daemon.rpc() as rpc:
        request = pb.JobName(name=f"j-{first.job_id:x}")
        story = rpc.call(rpc.job_service.ExplainJob, request).story
    why = "a process of it was refused, and runs unshared: the shim has layouts 7 to 8"
    assert any(why in line for line in story)


def test_a_second_hello_ends_the_connection(daemon):
    shim = daemon.start().shim()

    shim.socket.send(hello())

    assert shim.receive()[0] == 6
    with daemon.rpc() as rpc:
        until(lambda: not rpc.jobs(), what="its lease is over")


def test_a_killed_client_is_forgotten(daemon):
    with daemon.start().client() as client:
        client.stdout.readline()
        with daemon.rpc() as rpc:
            assert len(rpc.jobs()) == 1

            client.send_signal(signal.SIGKILL)

            until(lambda: not rpc.jobs(), what="the job is gone")
            (finished,) = rpc.jobs(show_finished=True)
            assert finished.processes == []


def test_a_dead_holder_does_not_keep_the_gpu(daemon):
    holder = daemon.start("--policy", "fifo").shim(job_class=BATCH)
    waiter = daemon.shim(job_class=BATCH)
    holder.work(busy=True)
    waiter.work(busy=False, waiting=True)
    until(lambda: waiter.is_held, what="the second is held")

    holder.close()

    until(lambda: not waiter.is_held, what="the second has the gpu")


def test_a_registered_job_lives_as_long_as_its_process(daemon):
    daemon.start()
    program = (
        "import sys; sys.path.insert(0, sys.argv[2]); import fake_shim as f;"
        "s = f.Shim(sys.argv[1]);"
        "s.socket.send(f.register('my train', name='t')); print(s.receive()[0], flush=True);"
        "s.close(); sys.stdin.read()"
    )
    here = os.path.dirname(__file__)
    arguments = [sys.executable, "-c", program, str(daemon.attach_path), here]
    with (
        subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as launcher,
        daemon.rpc() as rpc,
    ):
        assert launcher.stdout.readline() == f"{REGISTERED}\n"
        (job,) = rpc.jobs()
        assert (job.display_name, job.command, job.status.state) == ("t", "my train", 1)

        launcher.stdin.close()
        launcher.wait(PATIENCE_S)

        until(lambda: not rpc.jobs(), what="the job ends with its process")


def test_a_process_that_registers_once_more_is_the_launch_of_that_job_alone(daemon):
    daemon.start()
    launchers = [daemon.connect() for _ in range(2)]
    for launcher, name in zip(launchers, ("outer", "inner"), strict=True):
        launcher.socket.send(register(name=name))
        assert launcher.receive()[0] == REGISTERED

    with daemon.rpc() as rpc:
        assert [job.display_name for job in rpc.jobs()] == ["inner"]


def test_a_process_joins_the_registered_job_it_names(daemon):
    launcher = daemon.start().connect()
    launcher.socket.send(register(job_class=BATCH))
    _, body, _ = launcher.receive()
    (job_id,) = struct.unpack_from("=Q", body)

    shim = daemon.shim(job_id=job_id)

    assert shim.job_id == job_id
    assert shim.word(CLASS_OFFSET) == BATCH


def test_a_job_is_made_again_under_its_number_after_a_restart(daemon):
    job_id = daemon.start().shim().job_id
    daemon.stop(signal.SIGKILL)

    again = daemon.start().shim(job_id=job_id)

    assert again.job_id == job_id


@as_root
def test_a_client_of_another_uid_cannot_join_a_job_and_is_clamped(daemon):
    mine = daemon.start().shim(job_class=BATCH)

    options = ("--uid", str(NOBODY), "--job", str(mine.job_id), "--class", str(LATENCY))
    with daemon.client(*options) as client, daemon.rpc() as rpc:
        client.stdout.readline()
        jobs = {job.uid: job for job in rpc.jobs()}

    assert jobs[NOBODY].name != jobs[0].name
    assert getattr(jobs[NOBODY].spec, "class") == 2


@as_root
def test_a_client_of_another_uid_cannot_take_the_number_of_a_job_that_has_ended(daemon):
    mine = daemon.start().shim(name="ended")
    with daemon.rpc() as rpc:
        mine.close()
        until(lambda: not rpc.jobs(), what="the job has ended")

        with daemon.client("--uid", str(NOBODY), "--job", str(mine.job_id)) as client:
            client.stdout.readline()
            jobs = {job.uid: job for job in rpc.jobs(show_finished=True)}

    assert jobs[0].display_name == "ended"
    assert jobs[NOBODY].name != jobs[0].name


@as_root
def test_a_lower_class_than_asked_for_is_answered_and_told(daemon):
    daemon.start()
    os.seteuid(NOBODY)
    try:
        launcher = daemon.connect()
        launcher.socket.send(register(job_class=LATENCY, name="server"))
    finally:
        os.seteuid(0)
    _, answer, _ = launcher.receive()

    assert struct.unpack_from("=QI", answer)[1] == NORMAL
    with daemon.rpc() as rpc:
        story = rpc.call(rpc.job_service.ExplainJob, pb.JobName(name="server")).story
    told = "asked for class latency; its user may have at most normal (limits.default.max_class)"
    assert any(told in line for line in story)


def test_two_hundred_processes_attach_at_once(daemon):
    daemon.start()
    connections = [daemon.connect() for _ in range(200)]

    for shim in connections:
        shim.socket.send(hello())
    answers = [shim.receive() for shim in connections]

    assert {len(fds) for _, _, fds in answers} == {3}
    with daemon.rpc() as rpc:
        assert len(rpc.jobs()) == 200


def test_stopping_the_daemon_releases_everybody(daemon):
    holder = daemon.start("--policy", "fifo").shim(job_class=BATCH)
    held = daemon.shim(job_class=BATCH)
    holder.work(busy=True)
    held.work(busy=False, waiting=True)
    until(lambda: held.is_held, what="the second is held")

    assert daemon.stop(signal.SIGTERM) == 0

    assert not held.is_held
    assert held.word(FLAGS_OFFSET) & FLAG_RELEASED
    assert held.receive()[0] == 0
    assert not daemon.attach_path.exists()


def test_a_second_daemon_says_who_has_the_directory(daemon):
    daemon.start()

    second = daemon.run()

    assert second.returncode == 4
    assert f"pid {daemon.process.pid}" in second.stderr
    assert not daemon.shim().is_held


def test_stale_sockets_are_replaced(daemon):
    daemon.start()
    daemon.stop(signal.SIGKILL)
    assert daemon.attach_path.exists()

    daemon.start()

    assert not daemon.shim().is_held


@pytest.fixture
def unseeing(daemon):
    """A daemon in a PID namespace of its own, like a daemon in a container by default."""
    own = ["unshare", "--pid", "--fork", "--kill-child"]
    command = [*own, sys.executable, "-m", "tandemd", *daemon.arguments()]
    with daemon.log.open("wb") as log, daemon.made_ready():
        # The test kills `unshare`, which takes its child along.
        daemon.process = subprocess.Popen(command, env=daemon.environment(), stderr=log)
    return daemon


@as_root
def test_a_daemon_that_sees_nobody_says_so_to_who_comes_and_once_in_its_log(unseeing):
    for said in (hello(), hello(), register()):
        shim = unseeing.connect()
        shim.socket.send(said)
        kind, body, _ = shim.receive()
        code, reason = struct.unpack_from("=I4x512s", body)
        assert (kind, code) == (REFUSED, _attach.REFUSED_IDENTITY)
        assert b"hostPID" in reason
        assert shim.receive()[0] == 0

    assert unseeing.log.read_text().count("hostPID") == 1


@as_root
def test_the_doctor_finds_a_daemon_that_sees_nobody(unseeing):
    place = RuntimeDir(path=unseeing.runtime, origin="here")
    machine = _doctor.Machine(place=place, shim=unseeing.base, probe=None, probe_error="")

    (found,) = _doctor.check_identity(machine)

    assert found.level == _doctor.FAIL
    assert "hostPID" in found.text


# Says HELLO from where it runs, and prints the type of the answer, and the reason if it is refused.
GREET = """
import struct, sys
from fake_shim import REFUSED, Shim, hello
shim = Shim(sys.argv[1])
shim.socket.send(hello())
kind, body, _ = shim.receive()
print(kind, body[8:].split(b"\\0")[0].decode() if kind == REFUSED else "")
"""


@as_root
@pytest.mark.parametrize(("offset_s", "answer"), [(5000, REFUSED), (0, WELCOME)])
def test_a_process_with_another_clock_is_refused_and_told_so(daemon, offset_s, answer):
    daemon.start()
    there = ["unshare", "--time", "--fork", "--monotonic", str(offset_s)]
    said = subprocess.run(
        [*there, sys.executable, "-c", GREET, str(daemon.attach_path)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare" in said.stderr:
        pytest.skip(said.stderr.strip())  # no time namespaces, by the kernel or for this user

    kind, _, reason = said.stdout.partition(" ")
    assert int(kind) == answer, said.stderr
    assert ("time namespace" in reason) == (answer == REFUSED)
