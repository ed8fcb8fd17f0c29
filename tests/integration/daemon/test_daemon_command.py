import errno
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_shim import FLAG_RELEASED, FLAGS_OFFSET, PATIENCE_S
from running_daemon import until
from structlog.testing import capture_logs

from tandem.errors import UsageError
from tandemd.daemon import RESTORE_S, STOP_S
from tandemd.runtime import RENEW_S, SOCKETS, RuntimeDir
from tandemd.unit import render

PACKAGING = Path(__file__).resolve().parents[3] / "packaging"

# Sends itself a signal at the first of the imports, which take most of the time of a start.
HASTY = """
import os, sys

class Hasty:
    def find_spec(self, name, *_):
        if name == "structlog":
            sys.meta_path.remove(self)
            os.kill(os.getpid(), {number:d})

sys.meta_path.insert(0, Hasty())
"""
STARTS = [("-m", "tandemd"), ("-c", "from tandemd import main; main()")]


def test_a_valid_configuration_is_said_to_be_so(daemon):
    config = daemon.base / "config.toml"
    config.write_text(
        'version = 1\n[class.batch]\nweight = 2\n[limits.user.ann]\nmax_class = "latency"\n'
    )

    answer = daemon.run("--config", str(config), "--check-config")

    assert (answer.returncode, answer.stdout) == (0, f"the configuration is valid: {config}\n")


@pytest.mark.parametrize("start", STARTS, ids=["module", "script"])
@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_it_starts_where_streams_are_closed(daemon, start, closed):
    command = [sys.executable, *start, *daemon.arguments(), "--check-config"]

    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *command], env=daemon.environment(), check=False
    )

    assert done.returncode == 0


def test_limits_of_nobody_are_warned_of_in_a_line_for_people(daemon):
    config = daemon.base / "config.toml"
    config.write_text('[limits.user.nobody-of-that-name]\nmax_class = "batch"\n')

    answer = daemon.run("--config", str(config), "--check-config")

    section = "limits.user.nobody-of-that-name"
    assert answer.stderr == f"warning: {section}: this machine knows no such user or group\n"
    assert answer.stdout == f"the configuration is valid: {config}\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[scheduler]\npolcy = 1\n", "scheduler.polcy: unknown key"),
        ('[scheduler]\npolicy = "lottery"\n', "no policy is named 'lottery'"),
        ("[scheduler]\nquantum_ms = -1\n", "scheduler.quantum_ms: Input should be greater"),
        ("[scheduler\n", "config.toml: "),
        ("[scheduler]\nwindow_segments = 65\n", "less than or equal to 64, not 65"),
        ("version = 2\n", "version: "),
        ('[gpu.-1]\nmode = "mps"\n', "config.toml: gpu.-1: '-1' names no gpu; write '*'"),
        ('[gpu."0:2"]\nmode = "mps"\n', "an index from 0 to 9999, or a full UUID"),
        ('[gpu.GPU-8F]\nmode = "mps"\n', "'GPU-8F' names no gpu"),
        ('[memory]\nhost_limit = "lots"\n', "memory.host_limit: "),
        ('[memory]\nhost_limit = "-1GiB"\n', "memory.host_limit: "),
        ('[memory]\nswap_dir_limit = "1.5 parsecs"\n', "memory.swap_dir_limit: "),
        ('[memory]\nswap_dir = "swap"\n', 'neither "host" nor the absolute path of a directory'),
    ],
)
def test_a_wrong_configuration_is_refused_with_its_path(daemon, text, words):
    config = daemon.base / "config.toml"
    config.write_text(text)

    answer = daemon.run("--config", str(config), "--check-config")

    assert answer.returncode == 2
    assert words in answer.stderr


def test_a_daemon_that_may_open_too_few_files_says_so(tmp_path):
    command = [sys.executable, "-m", "tandemd", "--runtime-dir", str(tmp_path)]

    answer = subprocess.run(
        ["sh", "-c", 'ulimit -n 24; exec "$@"', "sh", *command],
        capture_output=True,
        text=True,
        check=False,
    )

    assert answer.returncode == 4
    [line] = answer.stderr.splitlines()
    assert line.startswith("error: the limit on open files is 24, but tandemd needs 64, ")
    assert "LimitNOFILE=" in line


def test_a_wrong_name_of_a_gpu_is_told_once_and_with_what_to_write(daemon):
    config = daemon.base / "config.toml"
    config.write_text('[gpu]\nmode = "mps"\n')

    answer = daemon.run("--config", str(config), "--check-config")

    [line] = answer.stderr.splitlines()
    assert "gpu.mode: 'mode' names no gpu; write '*' for all" in line
    assert line.endswith('[gpu."*"]')


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[scheduler]\npolcy = 1\n", "scheduler.polcy: unknown key; did you mean policy?"),
        ("[sheduler]\n", "sheduler: unknown key; did you mean scheduler?"),
        ('[gpu.0]\nmdoe = "mps"\n', "gpu.0.mdoe: unknown key; did you mean mode?"),
        ("[class.batch]\nwieght = 2\n", "class.batch.wieght: unknown key; did you mean weight?"),
        (
            "[watchdog.launch-bound]\nspan = 3\n",
            "watchdog.launch-bound.span: unknown key; did you mean span_s?",
        ),
        ("[scheduler]\nzzz = 3\n", "scheduler.zzz: unknown key"),
        ('[scheduler]\n"\\u001b[2Jx" = 3\n', "scheduler.?[2Jx: unknown key"),
        (
            "[memory]\nhost_limit = 5\n",
            "memory.host_limit: Input should be a valid string, not 5; "
            'write it in quotes, such as host_limit = "64GiB"',
        ),
    ],
)
def test_a_wrong_key_or_value_is_answered_with_what_was_meant(daemon, text, told):
    config = daemon.base / "config.toml"
    config.write_text(text)

    answer = daemon.run("--config", str(config), "--check-config")

    assert answer.stderr == f"error: {config}: {told}\n"


@pytest.mark.parametrize("words", [(), ("--check-config",)])
def test_a_swap_dir_that_is_not_there_keeps_the_daemon_from_starting(daemon, words):
    config = daemon.base / "config.toml"
    config.write_text(f'[memory]\nswap_dir = "{daemon.base / "missing"}"\n')

    answer = daemon.run("--config", str(config), *words)

    assert answer.returncode == 2
    assert "missing' is not a directory" in answer.stderr


def test_a_drop_in_wins_and_is_named_when_it_is_wrong(daemon):
    config = daemon.base / "config.toml"
    config.write_text("")
    (daemon.base / "config.d").mkdir()
    (daemon.base / "config.d" / "50-team.toml").write_text("[daemon]\nprivcy = 1\n")

    answer = daemon.run("--config", str(config), "--check-config")

    assert "50-team.toml: daemon.privcy: unknown key" in answer.stderr


def test_a_runtime_directory_too_long_for_a_socket_is_refused(daemon):
    answer = daemon.run("--runtime-dir", str(daemon.base / ("x" * 120)))

    assert answer.returncode == 2
    assert "too long" in answer.stderr


@pytest.mark.parametrize("is_taken", [False, True], ids=["removed", "another's"])
def test_a_daemon_that_nobody_can_reach_any_more_ends_and_lets_its_jobs_go(daemon, is_taken):
    daemon.start()
    shim = daemon.shim()

    of_another = (
        {"tandemd.lock", "attach.sock", "login.sock", "tandemd.sock"} if is_taken else set()
    )
    with daemon.stopped():  # before this one looks, another daemon might use the same path
        shutil.rmtree(daemon.runtime)
        if is_taken:
            daemon.runtime.mkdir()
        for name in of_another:
            (daemon.runtime / name).touch()

    assert daemon.process.wait(PATIENCE_S) == 4
    assert shim.word(FLAGS_OFFSET) & FLAG_RELEASED
    gone = "'tandemd.lock'" if is_taken else "it"
    told = f"error: runtime directory '{daemon.runtime}': {gone} was removed"
    assert told in daemon.log.read_text()
    assert not is_taken or {path.name for path in daemon.runtime.iterdir()} == of_another
    daemon.process = None


def test_a_daemon_that_is_to_end_leaves_what_is_at_its_path_by_then(daemon):
    daemon.start()

    with daemon.stopped():
        shutil.rmtree(daemon.runtime)
        daemon.runtime.mkdir()
        for name in SOCKETS:
            (daemon.runtime / name).touch()
        daemon.process.send_signal(signal.SIGTERM)

    assert daemon.process.wait(PATIENCE_S) == 4
    assert {path.name for path in daemon.runtime.iterdir()} == set(SOCKETS)
    daemon.process = None


def test_a_daemon_whose_sockets_are_removed_ends_as_well(daemon):
    daemon.start()

    (daemon.runtime / "login.sock").unlink()

    assert daemon.process.wait(PATIENCE_S) == 4
    assert "'login.sock' was removed" in daemon.log.read_text()
    daemon.process = None


def test_the_lock_file_is_touched_now_and_then(monkeypatch, tmp_path):
    directory = RuntimeDir(tmp_path / "rt")
    lock = tmp_path / "rt" / "tandemd.lock"
    os.utime(lock, (0, 0))
    assert directory.why_lost() == ""
    assert lock.stat().st_mtime == 0

    later_s = time.monotonic() + RENEW_S
    monkeypatch.setattr(time, "monotonic", lambda: later_s)

    assert directory.why_lost() == ""
    assert lock.stat().st_mtime > 0


def test_a_runtime_directory_without_room_is_refused(monkeypatch, tmp_path):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)

    with pytest.raises(UsageError, match=r"tandemd\.lock': No space left on device"):
        RuntimeDir(tmp_path / "rt")


@pytest.mark.parametrize(("mode", "told"), [(0o711, 0), (0o775, 1), (0o777, 1)])
def test_a_runtime_directory_that_others_may_write_to_is_told(mode, told, tmp_path):
    (tmp_path / "rt").mkdir()
    (tmp_path / "rt").chmod(mode)

    with capture_logs() as logs:
        RuntimeDir(tmp_path / "rt")

    assert [line["mode"] for line in logs] == [f"{mode:04o}"] * told


def test_a_runtime_directory_that_is_none_is_refused_before_its_mode_is_looked_at(tmp_path):
    (tmp_path / "rt").touch()
    (tmp_path / "rt").chmod(0o666)

    with (
        capture_logs() as logs,
        pytest.raises(UsageError, match="Not a directory; choose one with"),
    ):
        RuntimeDir(tmp_path / "rt")

    assert logs == []


def test_a_runtime_directory_of_which_more_is_missing_is_a_slip(daemon):
    answer = daemon.run("--runtime-dir", str(daemon.base / "rn" / "tandem"))

    assert answer.returncode == 2
    assert "rn/tandem': No such file or directory" in answer.stderr
    assert not (daemon.base / "rn").exists()


def test_help_has_examples_and_an_unknown_option_is_an_error(daemon):
    assert "examples:" in daemon.run("--help").stdout
    assert daemon.run("--polcy", "fair").returncode == 2


def test_the_packaged_unit_is_what_the_program_prints():
    assert (PACKAGING / "tandemd.service").read_text() == render(Path("/usr/bin/tandemd"))


def test_the_unit_hides_nothing_that_the_daemon_looks_at():
    def said(program, key):
        lines = render(Path(program)).splitlines()
        return next((line for line in lines if line.startswith(f"{key}=")), "")

    assert not said("/usr/bin/tandemd", "PrivateTmp")  # /tmp/nvidia-mps
    assert said("/usr/bin/tandemd", "ProtectHome").endswith("=yes")
    assert said("/home/a/venv/bin/tandemd", "ProtectHome").endswith("=read-only")


def test_systemd_waits_until_what_the_driver_saved_has_come_back():
    keys = dict(re.findall(r"^(\w+)=(.*)$", render(Path("/usr/bin/tandemd")), re.MULTILINE))

    assert int(keys["TimeoutStopSec"].removesuffix("s")) >= RESTORE_S + 10 * STOP_S


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_accepts_the_unit(tmp_path):
    unit = tmp_path / "tandemd.service"
    unit.write_text(render(Path(shutil.which("true"))))

    answer = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )

    assert (answer.returncode, answer.stderr) == (0, "")


def refused_with(daemon, *arguments):
    """Return the one error of a daemon that does not start, once it has left nothing behind."""
    answer = daemon.run(*arguments)
    errors = [line for line in answer.stderr.splitlines() if " level=" not in line]
    assert (answer.returncode, len(errors)) == (2, 1), answer.stderr
    assert not list(daemon.runtime.glob("*.sock"))
    return errors[0]


def test_a_port_for_metrics_that_is_taken_keeps_the_daemon_from_starting(daemon):
    config = daemon.base / "config.toml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        config.write_text(f'[metrics]\nlisten = "{listen}"\n')

        error = refused_with(daemon, "--config", str(config))

    assert error.startswith(f"error: metrics.listen = '{listen}': cannot listen there: ")
    assert "Address already in use" in error


def test_a_socket_for_metrics_in_no_directory_keeps_the_daemon_from_starting(daemon):
    config = daemon.base / "config.toml"
    config.write_text(f'[metrics]\nlisten = "unix:{daemon.base}/none/metrics"\n')

    assert "none/metrics': cannot listen there: " in refused_with(daemon, "--config", str(config))


@pytest.mark.parametrize("name", ["attach.sock", "login.sock", "tandemd.sock"])
def test_a_socket_that_cannot_be_made_keeps_the_daemon_from_starting(daemon, name):
    (daemon.runtime / name / "in the way").mkdir(parents=True)

    answer = daemon.run()

    assert answer.returncode == 2
    assert f"error: runtime directory '{daemon.runtime}': cannot listen there: " in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_reload_names_what_waits_for_a_restart_until_it_is_taken_back(daemon):
    config = daemon.base / "config.toml"
    config.write_text('[scheduler]\npolicy = "fair"\n')
    daemon.start("--config", str(config))

    def reload(text, times):
        config.write_text(text)
        daemon.process.send_signal(signal.SIGHUP)
        until(
            lambda: daemon.log.read_text().count("configuration read again") == times,
            what="a reload",
        )
        return [
            line for line in daemon.log.read_text().splitlines() if "only after a restart" in line
        ]

    told = reload('[daemon]\nmax_processes_per_uid = 2\n[metrics]\nlisten = "unix:/x/y"\n', 1)
    again = reload("", 2)

    assert len(told) == 1
    assert 'keys="daemon.max_processes_per_uid, metrics.listen"' in told[0]
    assert again == told


def test_what_was_imported_is_never_looked_through_while_it_serves(daemon):
    """While the garbage collector runs, the daemon makes no decisions."""
    program = (
        "import gc\n"
        "from tandemd import __main__ as tandemd\n"
        "tandemd._mind = lambda *_: print(len(gc.get_objects()), gc.get_freeze_count())\n"
        f"tandemd.main({daemon.arguments()!r})\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        env=daemon.environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )

    alive, frozen = map(int, done.stdout.split())
    assert alive < frozen / 10


def start_signalled(daemon, program, number):
    (daemon.base / "sitecustomize.py").write_text(HASTY.format(number=number))
    with daemon.made_ready(), daemon.log.open("w") as log:
        daemon.process = subprocess.Popen(
            [sys.executable, *program, *daemon.arguments()],
            env=daemon.environment() | {"PYTHONPATH": str(daemon.base)},
            stderr=log,
        )


@pytest.mark.parametrize("program", STARTS)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_end_that_comes_while_it_starts_ends_it_in_order(daemon, program, number):
    start_signalled(daemon, program, number)

    assert daemon.process.wait(PATIENCE_S) == 0
    assert f"signal={number.name}" in daemon.log.read_text()
    assert "Traceback" not in daemon.log.read_text()


@pytest.mark.parametrize("program", STARTS)
def test_a_reload_asked_for_while_it_starts_ends_nothing(daemon, program):
    start_signalled(daemon, program, signal.SIGHUP)

    until(lambda: "configuration read again" in daemon.log.read_text(), what="the reload")
    assert daemon.stop() == 0
