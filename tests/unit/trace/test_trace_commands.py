"""`tandem trace show`, `export` and `replay` on made-up recordings: output and refusals."""

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner
from recordings import Thread, file_of

from tandem.cli.__main__ import tandem as command
from tandem.errors import CapacityError, UsageError


@pytest.fixture
def recording(tmp_path):
    """Two lookups, one of which finds nothing, and a call."""
    path = tmp_path / "x.trace"
    thread = (
        Thread()
        .call("cuGetProcAddress_v2", 0, 0, 0, 0, 0, 0, 0, number=1, text=b"cuInit")
        .call("cuGetProcAddress_v2", 0, 0, 0, 0, 0, 0, 0, number=2, text=b"cuNone", result=500)
        .call("cuCtxSynchronize", number=3)
    )
    path.write_bytes(file_of(thread))
    return path


def run(*words):
    done = CliRunner().invoke(command, [str(word) for word in words], standalone_mode=False)
    return done.exception, done.output


def names(text):
    return [line.split("(")[0].split()[-1] for line in text.splitlines()]


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ((), ["cuCtxSynchronize"]),
        (("--all",), ["cuGetProcAddress_v2", "cuGetProcAddress_v2", "cuCtxSynchronize"]),
        (("-e", "cuGetProcAddress"), ["cuGetProcAddress_v2", "cuGetProcAddress_v2"]),
        (("-e", "status=success"), ["cuCtxSynchronize"]),
        (("--limit", "1"), ["cuCtxSynchronize"]),
    ],
)
def test_look_ups_are_printed_only_when_asked_for(recording, words, printed):
    error, text = run("trace", "show", *words, recording)

    assert error is None
    assert names(text) == printed


def test_the_table_counts_look_ups_but_a_name_not_found_is_no_error(recording):
    _, text = run("trace", "show", "-c", recording)

    (line,) = [line for line in text.splitlines() if "cuGetProcAddress_v2" in line]
    assert line.split()[-2:] == ["2", "cuGetProcAddress_v2"]


def test_whoever_named_a_kernel_moves_no_cursor_and_writes_no_line(recording):
    evil = b"k\x1b[2J\n[pid 1] cuInit() = CUDA_SUCCESS\xe2\x80\xae"
    thread = Thread().function(name=evil).launch(number=1, stream=0x55)
    recording.write_bytes(file_of(thread))

    _, text = run("trace", "show", recording)
    _, as_json = run("trace", "show", "--json", recording)

    (line,) = text.splitlines()
    assert line.isprintable()
    assert "f=k?[2J?[pid 1] cuInit() = CUDA_SUCCESS?, gridDimX=1" in line
    assert json.loads(as_json)["kernel"] == evil.decode()


@pytest.mark.parametrize("words", [("trace", "show"), ("dag",)])
def test_names_are_printed_where_the_encoding_lacks_their_letters(recording, words):
    recording.write_bytes(
        file_of(Thread().function(name="k\u6838".encode()).launch(number=1, stream=1))
    )

    done = subprocess.run(
        [sys.executable, "-m", "tandem.cli", *words, recording],
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        check=False,
    )

    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)
    assert b"k\\u6838" in done.stdout


@pytest.mark.parametrize(
    "words", [("trace", "export", "-o"), ("replay", "--timeline")], ids=["export", "replay"]
)
@pytest.mark.parametrize("alias", ["the same", "a symbolic link", "a hard link"])
def test_a_recording_is_not_written_over(recording, tmp_path, words, alias):
    before = recording.read_bytes()
    output = tmp_path / "other"
    if alias == "the same":
        output = recording
    elif alias == "a symbolic link":
        output.symlink_to(recording)
    else:
        output.hardlink_to(recording)

    error, _ = run(*words, output, recording)

    assert isinstance(error, UsageError)
    assert str(error) == f"'{output}' is the recording itself; name another file"
    assert recording.read_bytes() == before


def test_where_a_timeline_cannot_be_written_is_said_before_the_replay(recording, tmp_path):
    error, _ = run("replay", "--timeline", tmp_path / "none" / "t.jsonl", recording)

    assert isinstance(error, UsageError)
    assert f"cannot write the timeline '{tmp_path}/none/t.jsonl'" in str(error)
    assert f"there is no directory '{tmp_path}/none'" in str(error)


def test_a_timeline_and_a_device_that_runs_already_exclude_each_other(recording, tmp_path):
    error, _ = run("replay", "--timeline", tmp_path / "t", "--dir", tmp_path, recording)

    assert isinstance(error, UsageError)
    assert "leave out --timeline or --dir" in str(error)


def test_an_export_that_fails_leaves_what_was_there(recording, tmp_path, monkeypatch):
    def fail(_recording, file):
        file.write("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tandem.trace.chrome.write", fail)
    output = tmp_path / "x.json"
    output.write_text("before")

    error, _ = run("trace", "export", "-o", output, recording)

    assert isinstance(error, CapacityError)
    assert "No space left on device" in str(error)
    assert (output.read_text(), sorted(p.name for p in tmp_path.iterdir())) == (
        "before",
        ["x.json", "x.trace"],
    )


@pytest.mark.parametrize("words", [("trace", "export"), ("dag", "--format", "json")])
def test_a_dash_is_standard_output(recording, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)

    error, text = run(*words, "-o", "-", recording)

    assert error is None
    assert json.loads(text)
    assert [path.name for path in tmp_path.iterdir()] == ["x.trace"]


def test_a_file_that_is_written_anew_is_read_by_nobody_else_than_before(recording, tmp_path):
    output, planted = tmp_path / "x.json", tmp_path / "planted"
    output.touch(mode=0o600)
    tmp_path.joinpath(f".x.json.{os.getpid()}").symlink_to(planted)

    error, _ = run("trace", "export", "-o", output, recording)

    assert error is None
    assert output.stat().st_mode & 0o777 == 0o600
    assert json.loads(output.read_text())["traceEvents"]
    assert not planted.exists()
