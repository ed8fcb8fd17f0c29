"""The probe of sets of SMs: that it ends in time, and takes its processes along."""

import json
import os
import select
import subprocess
import sys
import time

import pytest

from tandem import _set_probe, softgpu

PATIENCE_S = 30
SILENT = "import time; time.sleep(3600)"
STUCK = "print('half a', end='', flush=True); " + SILENT
DEAF = "print('{}', flush=True); " + SILENT


def two(program, *words):
    """Of it, each with the number of its half behind the words."""
    return [
        subprocess.Popen(
            [sys.executable, "-c", program, *words, str(half)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for half in (0, 1)
    ]


@pytest.mark.parametrize("program", [SILENT, STUCK, DEAF])
def test_processes_that_do_not_answer_are_ended(program):
    clients = two(program)

    found = _set_probe._judge(clients, time.monotonic() + 0.1)

    assert found.problem == "a process that was to have a set of SMs ended, or did not answer"
    assert all(client.returncode for client in clients)


def test_what_one_says_that_has_ended_is_heard():
    said = {"problem": "the driver has none", "is_answer": True}
    program = f"import os; os.close(0); print({json.dumps(json.dumps(said))})"
    clients = two(program)

    found = _set_probe._judge(clients, time.monotonic() + PATIENCE_S)

    assert found == _set_probe.Found(problem="the driver has none")


def test_one_that_ends_when_it_is_let_go_is_no_error():
    program = "import os; os.close(0); print('{\"groups\": 2}', flush=True)"
    clients = two(program)

    found = _set_probe._judge(clients, time.monotonic() + PATIENCE_S)

    assert (found.is_answer, "did not answer" in found.problem) == (False, True)


@pytest.mark.parametrize("pipes", [{}, {"CUDA_MPS_PIPE_DIRECTORY": "/nowhere"}])
def test_under_mps_nothing_is_written(monkeypatch, pipes):
    def refuse(**_):
        raise FileNotFoundError("no usable temporary directory")

    found = _set_probe.Found(groups=16, group_sms=8)
    monkeypatch.setattr(_set_probe.tempfile, "TemporaryDirectory", refuse)
    monkeypatch.setattr(_set_probe, "_probe_in", lambda own: found)

    told = _set_probe.probe(pipes)

    problem = "no directory for another software gpu: no usable temporary directory"
    assert told == (found if pipes else _set_probe.Found(problem=problem, is_answer=False))


FULL = ([*range(8)], [*range(8, 24)])  # three groups of 8 SMs: one and two


@pytest.mark.parametrize(
    ("seen", "problem", "is_answer"),
    [
        (FULL, "", True),
        (([0], [8]), "a process ran on 1 of the 8 SMs of its set", False),
        (([], []), "a process ran on 0 of the 8 SMs of its set", False),
        ((FULL[0], FULL[1][1:]), "a process ran on 15 of the 16 SMs of its set", False),
        ((FULL[0][1:], FULL[1]), "a process ran on 7 of the 8 SMs of its set", False),
        (([*range(9)], FULL[1][1:]), "a set has more SMs than it was made of", True),
        (([0], [0]), "sets that should be disjoint share SMs, such as 0", True),
    ],
)
def test_a_proof_has_seen_every_sm_of_both_sets(seen, problem, is_answer):
    splits = [{"groups": 3, "group_sms": 8}] * 2

    found = _set_probe._compared(splits, [{"sms": sms} for sms in seen])

    assert (found.problem.startswith(problem), found.is_answer) == (True, is_answer)
    assert bool(found.problem) is bool(problem)


def test_sets_of_no_sms_prove_nothing():
    splits = [{"groups": 2, "group_sms": 0}] * 2

    assert _set_probe._compared(splits, [{"sms": []}] * 2).problem


def test_both_are_let_go_before_either_is_waited_for(tmp_path):
    os.mkfifo(tmp_path / "meeting")
    # Opening a pipe waits for the other end, so neither goes on without the other.
    program = (
        "import json, sys; print(json.dumps({'groups': 2, 'group_sms': 1}), flush=True); "
        "sys.stdin.readline(); half = int(sys.argv[2]); open(sys.argv[1], 'rw'[half]); "
        "print(json.dumps({'sms': [half]}))"
    )
    clients = two(program, str(tmp_path / "meeting"))

    found = _set_probe._judge(clients, time.monotonic() + PATIENCE_S)

    assert found == _set_probe.Found(groups=2, group_sms=1)


@pytest.mark.parametrize(("too_many", "seen"), [(0, 24), (1, 24)])
def test_blocks_see_all_sms_and_end_where_there_are_fewer_than_expected(tmp_path, too_many, seen):
    program = (
        "import sys; from tandem import _set_probe as probe; driver = probe._Driver(); "
        "driver.enter(driver.split()[:3]); driver.load(); "
        "print(len(driver.sms_seen(200, expected=int(sys.argv[1]))))"
    )
    environment = softgpu.environment(folder=tmp_path, profile="h200")

    done = subprocess.run(
        [sys.executable, "-c", program, str(seen + too_many)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )

    assert int(done.stdout) == seen


def test_its_processes_end_with_it(tmp_path):
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os, subprocess, sys; "
            "words = [sys.executable, '-m', 'tandem._set_probe', '0', str(os.getpid())]; "
            "subprocess.run(words)",
        ],
        env=softgpu.environment(folder=tmp_path),
        stdin=subprocess.PIPE,  # which the one half waits for
        stdout=subprocess.PIPE,
    )
    assert b"groups" in parent.stdout.readline()

    parent.kill()
    ended, _, _ = select.select([parent.stdout], [], [], PATIENCE_S)

    assert ended
    assert os.read(parent.stdout.fileno(), 1) == b""
    parent.wait()
    parent.stdin.close()
    parent.stdout.close()
