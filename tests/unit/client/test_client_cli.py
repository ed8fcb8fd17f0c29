"""The command line as a whole: exit codes, and messages for what went wrong."""

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from bench import recording

from tandem.cli import __main__ as cli
from tandem.errors import ERRORS


@pytest.fixture
def tandem(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("TANDEM_RUNTIME_DIR", str(tmp_path))

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["tandem", *words])
        code = cli.main()
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def failing(error):
    def command(**_):
        raise error

    return command


def test_a_misspelt_command_is_guessed(tandem):
    code, _, err = tandem("rnu")

    assert code == 2
    assert "no command 'rnu'; did you mean 'run'?" in err


@pytest.mark.parametrize(
    ("verb", "hint"),
    [("logs", "a job writes to where `tandem run` was started"), ("kill", "`tandem cancel` ends")],
)
def test_a_command_of_other_tools_says_what_there_is_instead(tandem, verb, hint):
    code, _, err = tandem(verb, "j-1")

    assert code == 2
    assert f"error: no command {verb!r}; {hint}" in err


def test_an_option_that_resembles_none_says_which_there_are_if_they_are_few(tandem):
    few, many = tandem("trace", "record", "--for", "5"), tandem("run", "--xyzzy", "--", "true")

    assert "No such option '--for'. There are --output, --seconds, --help.\n" in few[2]
    assert many[2].endswith("No such option '--xyzzy'.\n")


def test_a_misspelt_option_is_guessed_and_never_taken_as_the_command(tandem):
    code, _, err = tandem("run", "--priorty", "batch", "--", "true")

    assert code == 125
    assert "--priorty" in err
    assert "Did you mean '--priority'?" in err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["-m", "12XB"], "--memory '12XB' has the unknown unit 'XB'; use bytes or B, KiB"),
        (["-m", "20"], "--memory '20' is 20 B, less than a GPU gives out at a time; write the"),
        (["--ephemeral", "2097151"], "--ephemeral '2097151' is 2 MiB, less than"),
        (["-m", "0"], "--memory '0' would leave the job no memory; for no limit omit it"),
        (
            ["-m", "10MiB", "--memory-min", "20MiB", "--dry-run"],
            "--memory-min 20 MiB is more than --memory 10 MiB; lower one, or raise the other",
        ),
        (["-p", "urgent"], "'urgent' is not one of 'latency', 'normal', 'batch'"),
        (["--gpu", ""], "--gpu is blank; name a gpu as `tandem gpus` does, or leave it out"),
        (["--sm", "0"], "--sm '0' is not a number of SMs from 1 to 9999"),
        (
            ["--sm", "9" * 20],
            f"--sm '{'9' * 20}' is not a number of SMs from 1 to 9999; `tandem gpu",
        ),
        (["--sm", "9" * 5000], f"--sm '{'9' * 40}..' is not a number of SMs from 1 to 9999"),
        (["--sm", "x"], "--sm 'x' is neither a share (30%) nor a number of SMs"),
        (["--sm", "130%"], "from 1% to 100%"),
        (["--slo", "50ms"], "write it as p99=50ms"),
        (["--memory-min", "40%"], "--memory-min '40%' has the unknown unit '%'"),
        (["--wait-memory", "1x"], "--wait-memory '1x' "),
        (
            ["--wait-memory", "python"],
            "'python' is not a time such as 30s or 2h; to leave the time out",
        ),
        (["--wait-memory", "20h"], "--wait-memory '20h' is not between 1s and 65535s"),
        (["--idle-release", "0s"], "--idle-release '0s' is not an idle time; give one such as"),
        (["--idle-release", "1m", "--no-swappable"], "can be moved: add --swappable"),
        (["--idle-release", "1m", "--checkpoint"], "give --swappable and --no-checkpoint"),
        (["--env", "=x"], "--env '=x' is not NAME=VALUE"),
        (["--nane", "x"], "--name"),
        ([], "Missing argument 'COMMAND...'"),
    ],
)
def test_bad_options_of_run(tandem, words, complaint):
    code, out, err = tandem("run", *words, *(["--", "true"] if words else []))

    assert (code, out) == (125, "")  # 2 could be the command's own
    assert complaint in err


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("TANDEM_MEMORY", "12XB", "error: TANDEM_MEMORY '12XB' has the unknown unit"),
        ("CUDA_DEVICE_MEMORY_LIMIT_0", "12XB", "CUDA_DEVICE_MEMORY_LIMIT_0 '12XB' has the unknown"),
        ("CUDA_DEVICE_SM_LIMIT", "half", "CUDA_DEVICE_SM_LIMIT 'half' is neither a share"),
        ("TANDEM_PRIORITY", "urgent", "Invalid value for 'TANDEM_PRIORITY': 'urgent' is not one"),
        ("TANDEM_REQUIRE", "maybe", "Invalid value for 'TANDEM_REQUIRE': 'maybe' is not a valid"),
    ],
)
def test_a_bad_value_of_a_variable_is_called_by_its_name(
    tandem, monkeypatch, name, value, complaint
):
    monkeypatch.setenv(name, value)

    _, out, err = tandem("run", "--", "true")

    assert out == ""
    assert complaint in err


@pytest.mark.parametrize(
    "words",
    [
        ["demo", "--seconds"],
        ["demo", "memory", "--seconds"],
        ["softgpu", "status", "--watch"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("number", ["nan", "inf", "0"])
def test_what_is_no_number_in_the_range_is_refused(tandem, words, number):
    code, out, err = tandem(*words, number)

    assert (code, out) == (2, "")
    assert "in the range" in err


def test_a_demo_whose_trace_cannot_be_written_does_not_begin(tandem, monkeypatch):
    monkeypatch.setattr("tandem.demo.conductor.Conductor.prepare", failing(AssertionError()))

    code, out, err = tandem("demo", "--trace", "/nonexistent/x.json")

    assert (code, out) == (2, "")
    assert err == (
        "error: cannot write the trace '/nonexistent/x.json': "
        "there is no directory '/nonexistent'\n"
    )


@pytest.mark.parametrize("words", [["--bogus"], ["-o", "/nonexistent/x"], []], ids=" ".join)
def test_what_is_wrong_with_a_trace_of_a_command_is_no_code_of_the_command(tandem, words):
    code, out, err = tandem("trace", "calls", *words, *(["--", "true"] if words else []))

    assert (code, out) == (125, "")
    assert "error: " in err


def test_the_demo_without_its_extra_says_what_to_install(tandem, monkeypatch, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho \"No module named 'cuda.bindings'\" >&2; exit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))

    code, _, err = tandem("demo")

    assert code == 4
    assert "install Tandem with its [cuda] extra: pip install 'gpu-tandem[cuda]'" in err


@pytest.mark.parametrize("words", [["dag"], ["trace"], []])
def test_a_group_alone_prints_its_help_once(tandem, words):
    code, out, err = tandem(*words)

    assert (code, out) == (2, "")
    assert err.count("Usage: ") == 1
    assert "Commands:" in err


@pytest.mark.parametrize("number", ["0", "-1", "x"])
def test_iterations_are_counted_from_one(tandem, number):
    code, out, err = tandem("dag", "x.trace", "--iteration", number)

    assert (code, out) == (2, "")
    assert f"--iteration '{number}' is not an iteration: they are counted from 1, and" in err


@pytest.fixture
def made_up(tmp_path):
    """A recording that takes more than a moment to read."""
    path = tmp_path / "made-up.trace"
    recording.write(path, 20_000)
    return path


def test_control_c_leaves_the_old_file_and_no_half_of_a_new_one(
    tandem, monkeypatch, tmp_path, made_up
):
    def interrupted(_, file):
        file.write("half")
        raise KeyboardInterrupt

    monkeypatch.setattr("tandem.dag.json_form.write", interrupted)
    output = tmp_path / "graph.json"
    output.write_text("old")

    code, out, _ = tandem("dag", str(made_up), "-o", str(output))

    assert (code, out) == (130, "")
    assert output.read_text() == "old"
    assert set(tmp_path.iterdir()) == {made_up, output}


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_large_recording_shows_progress_on_a_terminal_alone(
    tandem, monkeypatch, made_up, is_terminal
):
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)

    code, _, err = tandem("dag", "stats", str(made_up))

    assert code == 0
    assert (f"reading {made_up}" in err) is is_terminal
    assert err.startswith("\r") is is_terminal
    assert "\x1b[Ktandem: note: " in err or not is_terminal  # erased before other output


def test_options_after_the_command_are_its_own(tandem):
    code, out, _ = tandem("run", "--dry-run", "true", "--priority", "x", "--bogus")

    assert code == 0
    assert out.endswith("true --priority x --bogus\n")


def test_a_dry_run_prints_what_of_the_callers_the_job_would_go_by(tandem, monkeypatch):
    monkeypatch.setenv("TANDEM_PRIORITY", "batch")
    monkeypatch.setenv("TANDEM_MEMORY", "1GiB")
    monkeypatch.setenv("UNRELATED", "1")

    _, out, _ = tandem("run", "--dry-run", "-m", "2GiB", "--", "true")

    words = set(out.split())
    assert {"TANDEM_PRIORITY=batch", "TANDEM_MEMORY=2GiB"} <= words
    assert not words & {"TANDEM_MEMORY=1GiB", "UNRELATED=1"}


def test_a_dry_run_prints_what_a_shell_can_run(tandem):
    words = ["run", "--dry-run", "-p", "batch", "-m", "40%", "--wait-memory", "--env", "A=b c"]
    words += ["--", "true", "x y"]

    code, out, _ = tandem(*words)

    assert code == 0
    assert out.startswith("env 'A=b c' LD_PRELOAD=")
    assert "TANDEM_MEMORY=40%" in out
    assert "TANDEM_WAIT_MEMORY=600s" in out  # ten minutes by default
    assert "TANDEM_PRIORITY=batch" in out
    assert out.endswith("'x y'\n")


@pytest.mark.parametrize(
    ("command", "code"), [("/no/such/command", 127), ("no-such-command", 127), ("/etc/passwd", 126)]
)
def test_a_command_that_cannot_be_started(tandem, command, code):
    exit_code, _, err = tandem("run", "--", command)

    assert exit_code == code
    assert err.startswith("error: ")
    assert command in err
    assert err.count("\n") == 1


def test_without_a_daemon_required_is_refused(tandem):
    code, _, err = tandem("run", "--require", "--", "true")

    assert code == 125
    assert "attach.sock: No such file or directory" in err
    assert "start tandemd, or drop --require" in err


@pytest.mark.parametrize(
    "words", [["ps"], ["status"], ["gpus"], ["explain", "j-1"], ["pause", "j-1"], ["resume", "j-1"]]
)
def test_without_a_daemon_the_others_say_what_was_tried(tandem, tmp_path, words):
    code, out, err = tandem(*words)

    assert (code, out) == (7, "")
    assert f"no daemon answers in {tmp_path} (TANDEM_RUNTIME_DIR)" in err
    assert "start one with `tandemd`" in err


def test_without_a_daemon_a_recording_that_is_not_there_is_said_to_be_missing(tandem):
    code, out, err = tandem("dag", "nosuch.trace")

    assert (code, out) == (7, "")
    assert err.startswith("error: there is no file 'nosuch.trace'; looking for a job of that name")
    assert "failed: no daemon answers" in err


@pytest.fixture
def shut_out(monkeypatch):
    class Guarded(socket.socket):
        def connect(self, _address):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(socket, "socket", Guarded)


@pytest.mark.usefixtures("shut_out")
def test_who_may_not_ask_the_daemon_is_not_told_to_start_one(tandem, tmp_path):
    code, out, err = tandem("ps")

    assert (code, out) == (7, "")
    assert f"no access to the daemon in {tmp_path} (TANDEM_RUNTIME_DIR): " in err
    assert f"{tmp_path}/login.sock: Permission denied; ask whoever runs it to let you in" in err
    assert "start" not in err


@pytest.mark.usefixtures("shut_out")
def test_who_may_not_register_is_not_told_to_start_a_daemon(tandem):
    code, _, err = tandem("run", "--require", "--", "true")

    assert code == 125
    assert "attach.sock: Permission denied; ask whoever runs tandemd to let you in, or drop" in err
    assert "no daemon" not in err


def test_without_the_client_libraries_a_command_says_what_to_install(tandem, monkeypatch):
    monkeypatch.delitem(sys.modules, "tandem._client", raising=False)
    monkeypatch.setitem(sys.modules, "grpc", None)

    code, _, err = tandem("ps")

    assert code == 4
    assert "[client]" in err


@pytest.mark.parametrize("row", ERRORS, ids=lambda row: row.error.__name__)
def test_each_error_has_its_exit_code(tandem, monkeypatch, row):
    monkeypatch.setattr("tandem.cli.ps.open_client", failing(row.error("cause; remedy")))

    assert tandem("ps") == (row.exit_code, "", "error: cause; remedy\n")


def test_control_c_is_130_and_only_ends_the_line(tandem, monkeypatch):
    monkeypatch.setattr("tandem.cli.ps.open_client", failing(KeyboardInterrupt()))

    assert tandem("ps") == (130, "", "\n")


def test_versions_name_this_python(tandem):
    code, out, _ = tandem("version")

    assert code == 0
    assert f"python         {sys.version.split()[0]}" in out


def test_a_full_disk_under_the_output_is_one_line():
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tandem.cli", "version"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert (done.returncode, done.stderr) == (
        5,
        "error: cannot write the output: No space left on device\n",
    )


@pytest.mark.parametrize(("words", "status"), [("version", 2), ("run -- true", 0)])
def test_a_closed_output_fails_what_has_something_to_print(words, status):
    command = [sys.executable, "-m", "tandem.cli", *words.split()]
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *command]

    done = subprocess.run(closed, stderr=subprocess.PIPE, text=True, check=False)

    assert done.returncode == status
    assert ("cannot write the output: standard output is closed" in done.stderr) == (status == 2)


@pytest.mark.parametrize("words", [["--help"], ["replay", "--help"], ["version"]], ids=" ".join)
def test_a_reader_that_goes_away_is_no_failure(words):
    command = [sys.executable, "-m", "tandem.cli", *words]
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as gone:
        done = subprocess.run(command, stdout=gone, stderr=subprocess.PIPE, check=False)

    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (PermissionError(13, "Permission denied", "/a/b"), "error: '/a/b': Permission denied\n"),
        (FileNotFoundError(2, "No such file"), "error: the current directory: No such file\n"),
    ],
    ids=["a directory that may not be entered", "a directory that was removed"],
)
def test_a_path_that_cannot_be_had_is_one_line(tandem, monkeypatch, failure, said):
    monkeypatch.setattr(cli.tandem, "main", lambda **_: failing(failure)())

    code, _, err = tandem("version")

    assert (code, err) == (2, said)


def test_a_full_disk_elsewhere_is_not_taken_for_the_output(tandem, monkeypatch):
    other = OSError(errno.ENOSPC, "No space left on device", "some/file")
    monkeypatch.setattr(cli.tandem, "main", lambda **_: failing(other)())

    with pytest.raises(OSError, match="some/file"):
        tandem("version")
