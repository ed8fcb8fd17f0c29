"""What `tandem doctor` says about sets of SMs, and whom it asks."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tandem import _doctor_sets, _set_probe, softgpu
from tandem._fitness import GpuFacts
from tandem._results import SetProof

GPU = GpuFacts(index=0, uuid="GPU-0", is_software=True)
PATIENCE_S = 30
NOTHING = {"under_way": False, "groups": 0, "group_sms": 0, "problem": ""}
# Runs in every Python that the doctor starts: the two that try sets record their pids, then hang.
HOLDING = """
import os, sys, time
if "tandem._set_holder" in sys.orig_argv:
    open({folder!r} + "/" + str(os.getpid()), "w").close()
    time.sleep(3600)
"""


@pytest.mark.parametrize(
    ("proof", "text"),
    [
        ({"groups": 16, "group_sms": 8}, "works: 16 groups of 8 SMs, and disjoint sets share none"),
        ({"under_way": True}, "can work; the daemon is proving it now"),
        ({"problem": "they share SMs"}, "no, says the daemon: they share SMs"),
    ],
)
def test_what_the_daemon_has_found_out_is_not_tried_again(tmp_path, proof, text):
    known = {"GPU-0": SetProof(**NOTHING | proof)}

    found = _doctor_sets.verdict(GPU, tmp_path, known, pytest.fail)

    assert found.text.startswith(text)


@pytest.fixture
def control(tmp_path, monkeypatch):
    """A control daemon that gives the answers that the test chooses."""

    def make(servers):
        program = tmp_path / "nvidia-cuda-mps-control"
        program.write_text(f"#!/bin/sh\necho {servers}\necho 100.0\n")
        program.chmod(0o755)
        os.mkfifo(tmp_path / "control")
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))

    return make


def test_the_work_of_another_user_is_not_disturbed(tmp_path, control, monkeypatch):
    control(os.getpid())
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    found = _doctor_sets.verdict(GPU, tmp_path, {}, pytest.fail)

    assert found.text == f"can work; not tried: the running mps serves uid {os.getuid()} now"


@pytest.mark.parametrize(
    ("why", "remedy"),
    [
        (f"cuInit failed with error 805: {_set_probe.NO_SERVER_HINT}", _doctor_sets.LOGS),
        ("cuMemAlloc_v2 failed with error 2", "try again when the gpu is less busy"),
    ],
)
def test_what_may_be_so_for_a_moment_is_not_known_and_what_to_do_is_said(
    tmp_path, control, monkeypatch, why, remedy
):
    control("")
    open_question = _set_probe.Found(problem=why, is_answer=False)
    monkeypatch.setattr(_set_probe, "probe", lambda _: open_question)

    found = _doctor_sets.verdict(GPU, tmp_path, {}, lambda _: None)

    assert (found.text, found.is_open, found.remedy) == (f"not known: {why}", True, remedy)


def test_without_mps_nothing_is_started(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))

    found = _doctor_sets.verdict(GPU, tmp_path, {}, pytest.fail)

    assert found.text == "can work; not tried: mps does not run"


def doctor(folder, *words, **variables):
    own = {"TANDEM_SOFTGPU_MODE": "mps", "TANDEM_RUNTIME_DIR": str(folder)}
    environment = softgpu.environment(folder=folder, profile="h200") | own | variables
    return subprocess.Popen(
        [sys.executable, "-m", "tandem.cli", "doctor", *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("variables", "level", "text"),
    [
        ({}, "ok", "works: 16 groups of 8 SMs, and disjoint sets share none (tried now)"),
        ({"TANDEM_SOFTGPU_GREEN": "shared"}, "ok", "no: sets that should be disjoint share SMs"),
        (
            {"TANDEM_SOFTGPU_GREEN": "none"},
            "ok",
            "no: the driver does not support cuGreenCtx",
        ),
    ],
)
def test_where_it_disturbs_nobody_it_is_tried(tmp_path, variables, level, text):
    with doctor(tmp_path, "--json", **variables) as process:
        out, told = process.communicate(timeout=PATIENCE_S)

    (found,) = (one for one in json.loads(out) if one["check"] == "gpu 0, mode mps+green")
    assert (found["level"], found["text"].startswith(text)) == (level, True)
    assert told == ""  # no progress line without a terminal


def test_interrupted_it_leaves_nothing(tmp_path):
    programs, held = tmp_path / "programs", tmp_path / "held"
    programs.mkdir()
    held.mkdir()
    (programs / "sitecustomize.py").write_text(HOLDING.format(folder=str(held)))
    path = f"{programs}:{os.environ.get('PYTHONPATH', '')}"
    with doctor(tmp_path, PYTHONPATH=path) as process:
        while len(pids := list(held.iterdir())) < 2:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)

    assert process.returncode != 0
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid.name}")]
