"""The client and the commands against a real daemon."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from tandem import _attach
from tandem._attach import Request
from tandem._client import Client
from tandem.errors import (
    AccessError,
    CapacityError,
    DeadlineError,
    NotFoundError,
    StateError,
    UnavailableError,
    UsageError,
)
from tandemd.core.model import NEVER_IDLE_NS

VOID = "0" * 64


def test_the_status_names_the_daemon(client, daemon, runtime_dir):
    status = client.status()

    assert status.pid == daemon.pid
    assert status.runtime_dir == str(runtime_dir)
    assert status.policy == "priority"
    assert status.jobs == 0


def test_a_job_shows_what_was_asked_for(client, job):
    (found,) = client.jobs()

    assert client.job(job).name == found.name == job
    assert found.display_name == "sleeper"
    assert found.priority == "normal"
    assert found.memory_quota_bytes == 2**30
    assert found.slo_p99_ns == 50_000_000
    assert found.preemptible is False
    assert found.group == "team"
    assert found.state == "starting"
    assert "sys.stdin.read" in found.command


def test_a_job_is_found_by_its_display_name(client, job):
    assert client.job("sleeper").name == job


def test_changes_are_seen(client, job):
    changed = client.set(job, priority="batch", memory="none", slo="none", preemptible=True)

    assert changed.priority == "batch"
    assert (changed.memory_quota_bytes, changed.slo_p99_ns) == (None, None)
    assert changed.preemptible is True
    assert client.job(job).priority == "batch"


def test_a_paused_job_is_paused_until_it_is_resumed(client, job):
    assert client.pause(job).state == "paused"
    assert client.job(job).state == "paused"
    assert client.resume(job).state != "paused"


def test_every_job_has_an_explanation(client, job):
    found = client.explain(job)

    assert found.job == job
    assert found.summary
    assert (found.mode, found.policy) == ("time", "priority")


def test_changes_can_be_watched(client, job):
    events = client.watch(deadline_s=20)

    client.pause(job)

    assert any(e.job.name == job and e.job.state == "paused" for e in events)
    events.close()


def test_a_watch_ends_with_its_deadline(client):
    with pytest.raises(DeadlineError):
        next(client.watch(deadline_s=0.3))


def test_a_watch_of_a_closed_client_says_so(client):
    events = client.watch(deadline_s=20)
    client.close()

    with pytest.raises(StateError, match="this client is closed; make another"):
        next(events)


def test_an_unknown_job_is_not_found(client):
    with pytest.raises(NotFoundError, match="j-1"):
        client.job("j-1")


def test_an_error_says_in_a_word_what_it_is(client, job):
    with pytest.raises(NotFoundError) as unknown:
        client.job("j-1")
    with pytest.raises(NotFoundError) as policy:
        client.set_policy("fastest")
    client.cancel(job, signal="KILL")
    client.wait(job, deadline_s=20)
    with pytest.raises(StateError) as ended:
        client.pause(job)

    assert unknown.value.reason == policy.value.reason == "NOT_FOUND"
    assert ended.value.reason == "JOB_ENDED"


def test_bad_values_are_refused_before_the_daemon_sees_them(client, job):
    with pytest.raises(UsageError, match="memory '12XB' has the unknown unit 'XB'"):
        client.set(job, memory="12XB")
    with pytest.raises(UsageError, match="priority 'urgent' is unknown; use latency, normal"):
        client.set(job, priority="urgent")


def test_a_change_of_nothing_is_refused(client, job):
    with pytest.raises(UsageError, match="nothing to change; give priority, memory"):
        client.set(job)


def test_a_client_survives_a_restart_of_the_daemon(client, daemon):
    before = client.status().pid

    daemon.kill()
    with pytest.raises(UnavailableError, match="start one with `tandemd`"):
        client.status(deadline_s=20)
    daemon.start()

    assert client.status(deadline_s=20).pid == daemon.pid != before


def test_a_client_whose_token_is_void_logs_in_again(client, daemon):
    client.status()
    client._connection.login.token = VOID

    assert client.status().pid == daemon.pid
    assert client._connection.login.token != VOID


def test_a_call_with_a_void_token_is_refused(client, monkeypatch):
    client.status()
    client._connection.login.token = VOID

    with monkeypatch.context() as patch:
        patch.setattr(client._connection, "forget_token", lambda: None)  # else it logs in again
        with pytest.raises(AccessError, match="no valid token"):
            client.status()


def test_a_daemon_that_does_not_answer_is_too_slow(runtime_dir):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as mute:
        mute.bind(str(runtime_dir / "login.sock"))
        mute.listen()
        client = Client(directory=str(runtime_dir))
        with client, pytest.raises(DeadlineError, match=r"no token within 0\.\d+ s"):
            client.status(deadline_s=0.1)


def test_closing_twice_is_fine(daemon, runtime_dir):
    client = Client(directory=str(runtime_dir))
    client.status()

    client.close()
    client.close()


def test_ps_is_a_table_or_json(tandem, job):
    table = tandem("ps").stdout.splitlines()
    (found,) = json.loads(tandem("ps", "--json").stdout)

    assert table[0].split()[:5] == ["JOB", "NAME", "USER", "CLASS", "STATE"]
    assert table[1].split()[:2] == [job, "sleeper"]
    assert (found["name"], found["memory_quota_bytes"]) == (job, 2**30)


def test_ps_of_another_user_is_empty(tandem, job):
    assert tandem("ps", "-u", "nobody").stdout.count("\n") == 1
    unknown = tandem("ps", "-u", "nobody-of-this-name")
    assert (unknown.returncode, unknown.stderr) == (
        3,
        "error: no user 'nobody-of-this-name' on this machine\n",
    )


def test_a_finished_job_is_shown_when_asked_for(tandem, client):
    assert tandem("run", "--require", "-J", "short", "--", "/bin/true").returncode == 0
    client.wait("short", deadline_s=20)

    assert "short" not in tandem("ps").stdout
    assert "exited" in tandem("ps", "-a").stdout


def test_commands_change_a_job(tandem, client, job):
    assert tandem("set", job, "priority=batch", "memory=2g").returncode == 0
    assert tandem("pause", job).stdout == f"{job} is paused\n"
    assert client.job(job).memory_quota_bytes == 2**31
    assert tandem("resume", "sleeper").returncode == 0
    assert client.job(job).state != "paused"


def test_commands_change_a_whole_group(tandem, client, job):
    assert tandem("pause", "-G", "team").stdout == f"{job} is paused\n"
    assert tandem("set", "-G", "team", "priority=batch").returncode == 0
    (found,) = client.group("team")
    assert (found.name, found.state, found.priority) == (job, "paused", "batch")
    assert tandem("resume", "-G", "team", "--json").returncode == 0

    done = tandem("cancel", "-G", "team")

    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == f"{job} has ended"
    assert tandem("wait", "-G", "team").stdout == f"{job} has ended\n"
    assert tandem("pause", "-G", "team").returncode == 4
    assert tandem("wait", "-G", "nope").returncode == 3


@pytest.mark.parametrize("words", [["pause"], ["set", "-G", "team"], ["set", "train"]])
def test_who_is_meant_and_what_is_to_change_is_to_be_said(tandem, words):
    assert tandem(*words).returncode == 2
    both = tandem("cancel", "train", "-G", "team")
    assert (both.returncode, both.stderr) == (
        2,
        "error: give either jobs (train) or the group 'team', not both\n",
    )


@pytest.mark.parametrize(("swappable", "told"), [(True, 0), (None, 1)])
def test_when_a_job_gives_its_memory_up_is_said_at_its_start(client, runtime_dir, swappable, told):
    asked = Request(name="nb", swappable=swappable, idle_release_ns=60 * 10**9)

    answer = _attach.register(runtime_dir / "attach.sock", asked, command="x", timeout_s=20)

    assert [line.split(":")[0] for line in answer.told] == ["idle_release has no effect"] * told
    assert client.job("nb").idle_release_ns == 60 * 10**9
    story = "\n".join(client.explain("nb").story)
    assert story.count("idle_release has no effect") == told


def test_a_job_that_never_gives_its_memory_up_says_so_at_its_start(client, runtime_dir):
    asked = Request(name="nb", swappable=True, idle_release_ns=_attach.NEVER_IDLE_NS)

    _attach.register(runtime_dir / "attach.sock", asked, command="x", timeout_s=20)

    assert client.job("nb").idle_release_ns == NEVER_IDLE_NS


def test_what_has_no_effect_is_said_and_set_all_the_same(tandem, client, job):
    done = tandem("set", job, "idle_release=60s", "persistent=1GiB", "--json")

    assert done.returncode == 0
    assert "tandem: warning: idle_release has no effect: only a job that was started" in done.stderr
    assert "tandem: warning: persistent has no effect under the policy 'priority'" in done.stderr
    assert [one.split()[0] for one in json.loads(done.stdout)["warnings"]] == [
        "idle_release",
        "persistent",
    ]
    assert client.job(job).idle_release_ns == 60 * 10**9
    assert client.job(job).warnings == ()


def test_a_share_of_nobody_knows_which_gpu_is_refused(tandem, job):
    done = tandem("set", job, "memory=30%")

    assert done.returncode == 4
    assert "is on no gpu whose memory is known" in done.stderr


def test_explain_names_the_policy(tandem, job):
    assert "policy priority" in tandem("explain", job).stdout


def test_an_admin_sets_the_policy(tandem, client):
    done = tandem("policy", "set", "fair")

    assert done.returncode == 0
    assert done.stdout.startswith("fair: ")
    assert done.stdout.endswith(
        "\nothers: curves, exclusive, fifo, lanes, pair, phases, priority, throttle, token\n"
        "until the daemon is reloaded or restarted; then scheduler.policy applies\n"
    )
    assert client.policy().name == client.status().policy == "fair"
    assert json.loads(tandem("policy", "get", "--json").stdout)["name"] == "fair"


def test_a_policy_that_is_none_changes_nothing(tandem, client):
    with pytest.raises(
        NotFoundError, match="no policy is named 'lottery'; there are curves, exclusive"
    ):
        client.set_policy("lottery")

    assert client.policy().name == "priority"


def test_an_unknown_job_is_exit_code_3(tandem, daemon):
    done = tandem("explain", "j-1")

    assert (done.returncode, done.stdout) == (3, "")
    assert "j-1" in done.stderr


def test_status_as_json_has_the_gpus(tandem, daemon):
    status = json.loads(tandem("status", "--json").stdout)

    assert status["pid"] == daemon.pid
    assert isinstance(status["gpus"], list)


def test_doctor_finds_the_daemon(tandem, daemon):
    findings = json.loads(tandem("doctor", "--json").stdout)

    found = {f["check"]: f for f in findings}
    assert found["daemon"]["level"] == "ok"
    assert f"pid {daemon.pid}" in found["daemon"]["text"]
    assert {found[n]["level"] for n in ("attach.sock", "login.sock", "tandemd.sock")} == {"ok"}
    assert found["shim"]["level"] == "ok"
    assert "daemon's state" not in found


@pytest.fixture
def broken_state(runtime_dir):
    (runtime_dir / "state.db").write_text("no database")


def test_a_state_file_that_cannot_be_used_is_named(broken_state, daemon, tandem, runtime_dir):
    findings = json.loads(tandem("doctor", "--json").stdout)

    (found,) = [f for f in findings if f["check"] == "daemon's state"]
    why = f"the state file {runtime_dir / 'state.db'} cannot be used: "
    assert (found["level"], found["text"].startswith(why)) == ("warn", True)
    assert f"problem  {found['text']}\n" in tandem("status").stdout


def test_doctor_fails_without_a_daemon_and_says_what_to_do(tandem, runtime_dir):
    done = tandem("doctor")

    assert done.returncode == 1
    assert "fail  daemon: no daemon answers in" in done.stdout
    assert "-> start `tandemd`" in done.stdout


def test_doctor_distrusts_a_directory_everybody_may_write_to(tandem, runtime_dir):
    runtime_dir.chmod(0o777)

    assert f"-> chmod go-w {runtime_dir}" in tandem("doctor").stdout


def test_a_reader_that_goes_away_is_no_error(environ, job):
    command = f"'{sys.executable}' -m tandem.cli.__main__ ps --json | head -c 1"

    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[", "")


def test_the_daemon_takes_the_request_of_run_as_it_is(daemon, client, runtime_dir):
    request = Request(priority="latency", name="direct", sm_percent=30)

    answer = _attach.register(runtime_dir / "attach.sock", request, command="x", timeout_s=20)

    assert isinstance(answer, _attach.Registered | _attach.Refused)


def test_a_process_that_registers_again_has_the_job_of_the_last(client, runtime_dir):
    def register(name):
        asked = Request(name=name)
        return _attach.register(runtime_dir / "attach.sock", asked, command="x", timeout_s=20)

    first, second = register("outer"), register("inner")

    assert first.job_id != second.job_id
    assert [job.display_name for job in client.jobs()] == ["inner"]
    assert client.job("outer").state == "exited"


def test_a_trace_follows_one_that_was_closed_and_a_short_one_is_no_silence(client):
    held, closed = [client.trace(seconds=600) for _ in range(2)]  # a user may have no more
    closed.close()

    while not _is_silent(client):  # the daemon learns of the close a moment later
        time.sleep(0.002)
    held.close()


def _is_silent(client):
    try:
        return list(client.trace(seconds=1e-6)) == []
    except CapacityError:
        return False


def test_a_trace_is_as_long_as_the_daemon_lets_it_be(client):
    with pytest.raises(UsageError, match="a duration of 601 s is not between 0 and 600 s"):
        client.trace(seconds=601)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_recording_that_is_interrupted_has_what_there_was(tandem, daemon, tmp_path, number):
    output = tmp_path / "jobs.json"
    # Interrupts at a point that does not depend on the machine's speed.
    code = (
        "import signal, sys\n"
        "from tandem._client import Client\n"
        "from tandem.cli.__main__ import main\n"
        f"def trace(*_, **__): signal.raise_signal({number:d}); yield\n"
        "Client.trace = trace\n"
        f"sys.argv[1:] = ['trace', 'record', '-o', {str(output)!r}, '--seconds', '600']\n"
        "sys.exit(main())\n"
    )

    done = tandem("run", "--", sys.executable, "-c", code)

    assert done.returncode == 128 + number
    assert f"'{output}' has what was recorded so far" in done.stderr
    assert "traceEvents" in json.loads(output.read_text())


def of_a_child(what):
    """Call `what` in a forked child; return its result as text."""
    reading, writing = os.pipe()
    if not (pid := os.fork()):
        try:
            os.write(writing, str(what()).encode())
        except BaseException as error:  # whatever it is, the child must not continue as a test
            os.write(writing, repr(error).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        said = told.read()
    os.waitpid(pid, 0)
    return said


def test_a_forked_child_connects_anew(client, job):
    assert client.pause(job)
    client._connection.lock.acquire()  # as if another thread held it at the fork

    def first_calls():
        (there,) = client.wait(job, until="paused", deadline_s=20)  # uses a watch
        client.resume(job)
        client.close()
        return there.name

    assert of_a_child(first_calls) == job
    client._connection.lock.release()
    assert [one.name for one in client.jobs()] == [job]
