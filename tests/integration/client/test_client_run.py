"""`tandem run` as a process, with a fake attach socket."""

import os
import signal
import subprocess
import sys

import pytest

from tandem import _native as native
from tandem import _paths

REFUSED = native.encode_refused(code=3, reason="uid 7 may not")
UNFIT = native.encode_refused(code=7, reason="it asks for 9 SMs, but gpu 0 has 8")
NO_ROOM = native.encode_refused(code=4, reason="no room for another process")
REGISTERED = native.encode_registered(job_id=0x7F3A)

SHOW = "import os; print(os.getpid(), os.environ.get('TANDEM_JOB_ID'), os.environ['LD_PRELOAD'])"


def python(code):
    return ("--", sys.executable, "-c", code)


@pytest.fixture
def daemon(attached, environ):
    """A fake daemon that registers every job and does not look hung on a busy machine."""
    environ["TANDEM_REQUIRE"] = "1"
    return attached(REGISTERED)


def test_the_job_is_registered_and_knows_its_name(tandem, daemon):
    done = tandem("run", "-p", "batch", "-J", "train", "-m", "1g", *python(SHOW))

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == [str(done.pid), "j-7f3a", str(_paths.SHIM)]
    request = native.decode(daemon.packets[0]).request
    assert (request.job_class, request.name, request.memory_bytes) == (3, "train", 2**30)


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
@pytest.mark.parametrize(("said", "group"), [((), "torchrun::a"), (("-G", "mine"), "mine")])
def test_a_rank_joins_the_group_of_its_launch_unless_another_was_said(
    tandem, daemon, said, group, dry
):
    show = python("import os; print('in', os.environ.get('TANDEM_GROUP'))")

    done = tandem("run", *said, *dry, *show, TORCHELASTIC_RUN_ID="a")

    assert native.decode(daemon.packets[0]).request.group == group
    assert dry or done.stdout.split() == ["in", "mine" if said else "None"]  # given, or found


def test_an_id_that_is_no_text_keeps_no_job_from_starting(tandem, daemon):
    done = tandem("run", "--", "/bin/true", TORCHELASTIC_RUN_ID=os.fsdecode(b"\xff"))

    assert (done.returncode, done.stderr) == (0, "")
    assert native.decode(daemon.packets[0]).request.group == "torchrun::?"


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
@pytest.mark.parametrize(("granted", "warnings"), [(0, 0), (1, 0), (2, 1)])
def test_a_lower_priority_than_asked_for_is_told(tandem, attached, granted, warnings, dry):
    attached(native.encode_registered(job_id=0x7F3A, job_class=granted))

    done = tandem("run", "-p", "latency", *dry, "--", "/bin/true")

    assert (done.returncode, len(done.stderr.splitlines())) == (0, warnings)
    assert ("its priority is 'normal', not 'latency'" in done.stderr) == bool(warnings)


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_what_has_no_effect_is_told_before_it_starts(tandem, attached, dry):
    attached(native.encode_registered(job_id=0x7F3A, told="one has no effect\nnor has another"))

    done = tandem("run", *dry, "--", "/bin/true")

    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "tandem: warning: one has no effect",
        "tandem: warning: nor has another",
    ]


def test_the_process_becomes_the_command(tandem, daemon):
    done = tandem("run", *python("import os; print(os.getpid())"))

    assert daemon.pids == [done.pid]
    assert done.stdout == f"{done.pid}\n"


def test_the_daemon_sees_the_command_as_a_shell_would_take_it(tandem, daemon):
    tandem("run", "--", "/bin/echo", "a b")

    assert native.decode(daemon.packets[0]).command == "/bin/echo 'a b'"


@pytest.mark.parametrize("code", [0, 1, 7, 125])
def test_the_exit_code_is_that_of_the_command(tandem, daemon, code):
    assert tandem("run", "--", "/bin/sh", "-c", f"exit {code}").returncode == code


def test_the_command_dies_of_its_signal(tandem, daemon):
    assert tandem("run", "--", "/bin/sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM


def test_output_and_input_are_those_of_the_command(tandem, daemon):
    done = tandem("run", "--", "/bin/bash", "-c", "seq 100000 | head -1; echo err >&2")

    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "err\n")


def test_no_signal_is_ignored_that_was_not_before(tandem, daemon):
    show = ("/bin/grep", "^Sig[BI]", "/proc/self/status")

    ours = tandem("run", "--", *show).stdout

    # The parent of the tests may ignore some signals itself, as nohup does.
    assert ours == subprocess.run(show, capture_output=True, text=True, check=True).stdout


def test_no_descriptor_is_left_to_the_command(tandem, daemon):
    done = tandem("run", "--", "/bin/sh", "-c", "ls /proc/$$/fd")

    assert set(done.stdout.split()) <= {"0", "1", "2", "10"}  # 10 is a shell's own


def test_without_a_daemon_the_command_runs_after_one_line(tandem, runtime_dir):
    done = tandem("run", *python(SHOW))

    assert done.returncode == 0
    assert done.stdout.split() == [str(done.pid), "None", str(_paths.SHIM)]
    assert done.stderr == (
        f"tandem: warning: no daemon ({runtime_dir}/attach.sock: No such file or directory); "
        "running unshared\n"
    )


def test_a_stale_socket_is_no_daemon(tandem, attached, runtime_dir):
    fake = attached(REGISTERED)
    (runtime_dir / "attach.sock").rename(runtime_dir / "x")
    os.symlink(runtime_dir / "gone", runtime_dir / "attach.sock")

    done = tandem("run", "--", "/bin/true")

    assert done.returncode == 0
    assert "running unshared" in done.stderr
    assert fake.packets == []
    (runtime_dir / "attach.sock").unlink()
    (runtime_dir / "x").rename(runtime_dir / "attach.sock")


def test_a_hung_daemon_costs_a_second_and_a_line(tandem, attached, runtime_dir):
    attached(None)

    done = tandem("run", "--", "/bin/echo", "ran")

    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert done.stderr == (
        f"tandem: warning: no answer from the daemon on {runtime_dir}/attach.sock within 1 s; "
        "running unshared\n"
    )


def test_garbage_is_no_daemon(tandem, attached):
    attached(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    done = tandem("run", "--", "/bin/echo", "ran")

    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert "speaks another protocol" in done.stderr


def test_a_refused_job_runs_unshared_and_says_why(tandem, attached):
    attached(REFUSED)

    done = tandem("run", "--", "/bin/echo", "ran")

    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert done.stderr == ("tandem: warning: the daemon refuses: uid 7 may not; running unshared\n")


@pytest.mark.parametrize(("reply", "shown"), [(REFUSED, "1"), (REGISTERED, "None"), (None, "None")])
def test_only_a_refused_job_is_left_alone_by_the_library(tandem, attached, reply, shown):
    attached(reply)

    done = tandem("run", *python("import os; print(os.environ.get('TANDEM_DISABLE'))"))

    assert done.stdout == f"{shown}\n"


@pytest.mark.parametrize("how", [{"words": ["--require"]}, {"variables": {"TANDEM_REQUIRE": "1"}}])
def test_required_means_no_unshared_run(tandem, how):
    command = [*how.get("words", []), "--", "/bin/echo", "ran"]

    done = tandem("run", *command, **how.get("variables", {}))

    assert (done.returncode, done.stdout) == (125, "")
    assert "start tandemd, or drop --require" in done.stderr


@pytest.mark.parametrize(("reply", "code"), [(REFUSED, 125), (NO_ROOM, 75)])
def test_a_required_job_that_is_refused_does_not_run(tandem, attached, reply, code):
    attached(reply)

    done = tandem("run", "--require", "--", "/bin/echo", "ran")

    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("error: the daemon refuses: ")


def test_a_job_that_asks_for_what_no_gpu_can_give_is_not_started_required_or_not(tandem, attached):
    attached(UNFIT)

    done = tandem("run", "--sm", "9", "--", "/bin/echo", "ran")

    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr == "error: not started: it asks for 9 SMs, but gpu 0 has 8\n"


@pytest.mark.parametrize(
    ("words", "no_wait"), [(("--no-wait",), True), (("--wait",), False), ((), False)]
)
def test_the_daemon_hears_whether_the_job_may_stand_in_line(tandem, daemon, words, no_wait):
    tandem("run", *words, "--", "/bin/true")

    assert native.decode(daemon.packets[0]).no_wait is no_wait


def test_a_job_that_is_not_to_wait_does_not_run_without_room(tandem, attached):
    attached(NO_ROOM)

    done = tandem("run", "--no-wait", "--", "/bin/echo", "ran")

    assert (done.returncode, done.stdout) == (75, "")
    assert done.stderr == "error: the daemon refuses: no room for another process\n"


def test_without_a_daemon_there_is_no_line_to_stand_in(tandem, runtime_dir):
    done = tandem("run", "--no-wait", "--", "/bin/echo", "ran")

    assert (done.returncode, done.stdout) == (0, "ran\n")


def test_a_command_that_does_not_exist_is_not_registered(tandem, daemon):
    assert tandem("run", "--", "no-such-command").returncode == 127
    assert tandem("run", "--", "/etc/passwd").returncode == 126
    assert daemon.packets == []


def test_a_disabled_run_is_a_bare_run(tandem, daemon):
    done = tandem("run", "--", "/bin/sh", "-c", "echo $LD_PRELOAD.", TANDEM_DISABLE="1")

    assert (done.returncode, done.stdout, done.stderr) == (0, ".\n", "")
    assert daemon.packets == []


def test_a_script_without_interpreter_runs_as_in_a_shell(tandem, daemon, tmp_path):
    script = tmp_path / "script"
    script.write_text("echo ran $1\n")
    script.chmod(0o755)

    assert tandem("run", "--", script, "x").stdout == "ran x\n"


def test_a_script_whose_interpreter_is_gone_is_127(tandem, daemon, tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)

    done = tandem("run", "--", script)

    assert done.returncode == 127
    assert "cannot execute" in done.stderr


def test_nested_runs_preload_once_and_register_twice(tandem, daemon):
    inner = [sys.executable, "-m", "tandem.cli.__main__", "run", *python(SHOW)]

    done = tandem("run", "-p", "batch", "--", *inner)

    assert done.stdout.split()[2] == str(_paths.SHIM)
    assert [native.decode(p).request.job_class for p in daemon.packets] == [3, 3]


def test_a_dry_run_shows_what_the_daemon_would_set(tandem, attached):
    daemon = attached(native.encode_registered(job_id=0, environment="CUDA_MPS_CLIENT_PRIORITY=1"))

    done = tandem("run", "--dry-run", "--", "/bin/echo", "ran")

    assert native.decode(daemon.packets[0]).only_asks
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("env CUDA_MPS_CLIENT_PRIORITY=1 ")


def test_the_daemons_name_of_the_gpu_that_is_meant_is_taken(tandem, attached):
    attached(native.encode_registered(job_id=7, environment="CUDA_VISIBLE_DEVICES=GPU-8f3c"))

    done = tandem("run", "-i", "1", "--", "/bin/sh", "-c", "echo $CUDA_VISIBLE_DEVICES")

    assert (done.returncode, done.stdout, done.stderr) == (0, "GPU-8f3c\n", "")


def test_a_dry_run_says_that_the_daemon_would_refuse(tandem, attached):
    attached(UNFIT)

    done = tandem("run", "--dry-run", "--", "/bin/echo", "ran")

    assert done.returncode == 0
    assert "would refuse this job: it asks for 9 SMs" in done.stderr
    assert "/bin/echo ran" in done.stdout
