"""The probe of sets of SMs: that it ends in time, and takes its processes along."""

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


@pytest.mark.parametrize("program", [SILENT, STUCK, DEAF])
def test_processes_that_do_not_answer_are_ended(program):
    clients = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]

    found = _set_probe._judge(clients, time.monotonic() + 0.1)

    assert found.problem == "a process that was to have a set of SMs ended, or did not answer"
    assert all(client.returncode for client in clients)


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
