"""The runner of the parts of `make gpu`: a time limit that leaves no process, one results file."""

import json
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest
from bench.gpu.harness import results
from bench.gpu.parts.same_results import compare

from tandem.demo.measure import WorkerReport

ROOT = Path(__file__).resolve().parents[3]
# A child in a session of its own, like a part's programs; it keeps our pipe open.
LEAVE_A_CHILD = "setsid sleep 600 & echo started; "
PATIENCE_S = 60


def limited(seconds, code):
    command = [sys.executable, "-m", "bench.gpu.harness.limit", str(seconds)]
    command += ["sh", "-c", code]
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    with child:
        assert child.stdout.readline() == b"started\n"
        code = child.wait(timeout=PATIENCE_S)
        # Reading reports the end of the pipe once nobody has it open.
        assert select.select([child.stdout], [], [], PATIENCE_S)[0]
        assert child.stdout.read() == b""
        return code


@pytest.mark.slow
def test_a_part_is_ended_with_the_programs_it_started():
    assert limited(3, LEAVE_A_CHILD + "exec sleep 600") == 124


def test_what_a_finished_part_left_behind_is_ended():
    assert limited(100, LEAVE_A_CHILD + "exit 3") == 3


def test_a_failed_part_stands_beside_the_others(tmp_path, capsys):
    parts = tmp_path / "parts"
    parts.mkdir()
    (parts / "demo.json").write_text('{"ok": true}')
    (parts / "workloads.failed").write_text('{"failed": 124}')
    output = tmp_path / "results.json"
    output.write_text('{"tests": {"passed": 4}}')

    results.merge(parts, output)

    merged = json.loads(output.read_text())
    assert merged["tests"] == {"passed": 4}
    assert merged["demo"]["ok"] is True
    assert merged["workloads"]["failed"] == 124
    assert "124" in capsys.readouterr().out


WHOLE, WHOLE_TOO = {"gpu": "H100", "calls": 1}, {"gpu": "H200", "calls": 2}
ENDED, ENDED_TOO = WHOLE | {"failed": 1}, WHOLE_TOO | {"failed": 124}
SILENT = {"gpu": "H200", "failed": 137, "unreadable": "vmm.json: cut off"}


@pytest.mark.parametrize(
    ("earlier", "later", "kept"),
    [
        (WHOLE, WHOLE_TOO, WHOLE_TOO),
        (WHOLE, ENDED_TOO, WHOLE | {"failed_again": ENDED_TOO}),
        (ENDED, WHOLE_TOO, WHOLE_TOO),
        (ENDED, ENDED_TOO, ENDED_TOO),
        (ENDED, SILENT, ENDED | {"failed_again": SILENT}),
        (SILENT, ENDED, ENDED),
    ],
)
def test_of_a_part_that_ran_twice_the_better_run_stands(earlier, later, kept, tmp_path):
    first, second, target = (tmp_path / f"{name}.json" for name in ("first", "second", "all"))
    first.write_text(json.dumps({"vmm": earlier, "demo": {"ok": True}}))
    second.write_text(json.dumps({"vmm": later, "tests": {"ok": True}}))

    results.join([first, second], target)

    joined = {"vmm": kept, "demo": {"ok": True}, "tests": {"ok": True}}
    assert json.loads(target.read_text()) == joined


def report(digest, *, correct=True):
    return WorkerReport(
        role="vision",
        pid=os.getpid(),
        exit_code=0,
        start_ns=0,
        items=({"correct": correct},),
        digest=digest,
    )


@pytest.mark.parametrize(
    ("runs", "verdict"),
    [
        ((report("a"), report("a"), report("a")), "same"),
        ((report("a"), report("a"), report("b")), "different under tandem"),
        ((report("a"), report("b"), report("a")), "not repeatable alone"),
        ((report("a"), report("a", correct=False), report("a")), "wrong even alone"),
        ((report("a"), report("a"), report("a", correct=False)), "wrong under tandem"),
    ],
)
def test_three_runs_give_a_verdict(runs, verdict):
    assert compare(*runs)["verdict"] == verdict


ENDED = """
from bench.gpu.harness import part, questions
def measure(bench):
    bench.save({"rows": {"first": 1}})
    questions.answered("second", lambda: {"is": 2})
    raise KeyboardInterrupt
part.main(measure)
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", ["raise KeyboardInterrupt", "1 / 0"])
def test_a_part_that_is_ended_leaves_what_it_found(end, tmp_path):
    out = tmp_path / "part.json"
    code = ENDED.replace("raise KeyboardInterrupt", end)
    command = [sys.executable, "-c", code, "--where", "cpu", "--out", str(out)]

    child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    figures = json.loads(out.read_text())
    assert child.returncode == 1
    assert figures["rows"] == {"first": 1}
    assert figures["second"] == {"is": 2}
    assert figures["ok"] is False


def test_a_part_that_was_killed_while_it_wrote_does_not_take_the_others_along(tmp_path):
    parts = tmp_path / "parts"
    parts.mkdir()
    (parts / "demo.json").write_text('{"ok": true}')
    (parts / "vmm.json").write_text('{"calls": {"gran')
    output = tmp_path / "results.json"

    results.merge(parts, output)

    merged = json.loads(output.read_text())
    assert merged["demo"]["ok"] is True
    assert "vmm.json" in merged["vmm"]["unreadable"]


@pytest.mark.slow
def test_no_part_is_begun_for_which_too_little_time_is_left(tmp_path):
    environ = os.environ | {"DRY": "1", "PART": "markers,calls", "TOTAL": "1"}
    environ |= {"PYTHON": sys.executable, "OUT": str(tmp_path)}

    child = subprocess.run(
        ["bash", "bench/gpu/run.sh"],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )

    assert child.returncode == 0, child.stderr
    assert "markers: not begun" in child.stdout
    assert "calls: not begun" in child.stdout
    (output,) = tmp_path.iterdir()
    content = json.loads(output.read_text())
    assert content.keys() == {"machine", "not_begun"}
    assert content["not_begun"].keys() == {"markers", "calls"}
    assert "50 s" in content["not_begun"]["markers"]


def test_only_what_never_ran_is_told_as_not_begun(tmp_path):
    parts = tmp_path / "parts"
    parts.mkdir()
    first, second, target = (tmp_path / f"{name}.json" for name in ("first", "second", "all"))
    first.write_text('{"swap": {"out": 0.9}, "not_begun": {"vmm": "old", "demo": "old"}}')
    for name in ("swap", "vmm", "calls"):
        (parts / f"{name}.not_begun").write_text("late\n")
    (parts / "demo.json").write_text('{"ok": true}')
    second.write_text('{"calls": {"failed": 1}, "not_begun": {"swap": "late"}}')

    results.merge(parts, first)
    merged = json.loads(first.read_text())
    results.join([first, second], target)

    assert merged["not_begun"] == {"vmm": "late", "calls": "late"}
    assert merged["swap"] == {"out": 0.9}
    assert json.loads(target.read_text())["not_begun"] == {"vmm": "late"}


def test_a_part_that_fails_later_leaves_what_it_had_said(tmp_path):
    parts = tmp_path / "parts"
    parts.mkdir()
    output = tmp_path / "results.json"
    output.write_text('{"swap": {"gpu": "H200", "out": 0.9}, "vmm": {"calls": 1, "failed": 124}}')
    (parts / "machine.json").write_text('{"gpu": "H100"}')
    (parts / "swap.failed").write_text('{"failed": 137}')
    (parts / "vmm.failed").write_text('{"failed": 1}')
    (parts / "vmm.json").write_text('{"calls": 2}')
    (parts / "demo.failed").write_text('{"failed": 2}')

    for _ in range(2):  # once per part of a run
        results.merge(parts, output)

    merged = json.loads(output.read_text())
    assert (merged["swap"]["gpu"], merged["swap"]["out"]) == ("H200", 0.9)
    assert merged["swap"]["failed_again"]["failed"] == 137
    assert merged["swap"]["failed_again"]["gpu"] == "H100"
    assert merged["demo"].keys() == {"commit", "gpu", "failed"}
    assert (merged["vmm"]["gpu"], merged["vmm"]["calls"], merged["vmm"]["failed"]) == ("H100", 2, 1)
