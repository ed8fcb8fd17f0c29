"""What `tandem doctor` says about MPS."""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tandem import _fitness
from tandem._doctor import OK, WARN, check_modes, check_mps
from tandem._fitness import GpuFacts, Machine, objections


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Return the text, with this script as MPS's control program; None: there is none."""

    def look(script, *, pipe=True):
        programs, usual = tmp_path / "bin", tmp_path / "usual"
        for folder in (programs, usual):
            folder.mkdir(exist_ok=True)
        program = programs / "nvidia-cuda-mps-control"
        if script is not None:
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)
        if pipe and not (usual / "control").exists():
            os.mkfifo(usual / "control")
        monkeypatch.setenv("PATH", str(programs))
        monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(usual))
        machine = SimpleNamespace(place=SimpleNamespace(path=Path("/nowhere")))
        (found,) = check_mps(machine)
        assert (found.check, found.level) == ("mps", OK)
        return found.text

    return look


def test_servers_of_a_running_control_daemon_are_told(told, tmp_path):
    text = told("echo 17; echo 23; echo 100.0")

    assert text == f"a control daemon answers in {tmp_path / 'usual'}; servers: 17 23"
    assert told("echo 100.0").endswith("servers: none")


def test_a_pipe_that_nobody_answers_at_is_no_mps(told, monkeypatch):
    monkeypatch.setattr("tandem._doctor.DAEMON_TIMEOUT_S", 0.2)
    assert told("exit 0", pipe=False).startswith("it does not run; in mode mps")
    assert told("exit 1").startswith("it does not run; in mode mps")


def test_a_software_gpu_that_runs_contexts_side_by_side_needs_no_mps(told, monkeypatch):
    monkeypatch.setenv("TANDEM_SOFTGPU_MODE", "mps")

    assert "the software GPU does not need it" in told("exit 0", pipe=False)


def test_a_machine_without_the_program_cannot_have_it(told):
    assert told(None).startswith("no nvidia-cuda-mps-control on the PATH")


WHOLE = Machine(uid=1000, cuda_version=13000, can_start_mps=True)


@pytest.mark.parametrize(
    ("gpu", "machine", "mode", "why"),
    [
        ({}, {}, "time", ""),
        ({}, {}, "mps", ""),
        ({}, {}, "mps+green", ""),
        ({}, {}, "mig", "this gpu has no MIG"),
        ({"compute_mode": 3}, {}, "time", "compute mode exclusive-process: a second job gets no"),
        ({"compute_mode": 3}, {}, "mps", ""),  # the MPS server is the one allowed process
        ({"compute_mode": 2}, {}, "mps", "compute mode prohibited"),
        ({"has_mig_on": True, "instances": 2}, {}, "time", "MIG is on"),
        ({"has_mig_on": True, "instances": 2}, {}, "mps", "MIG is on"),
        ({"has_mig_on": True, "instances": 2}, {}, "mig", ""),
        ({"has_mig_on": True}, {}, "mig", "it is not cut into instances"),
        ({"has_mig_on": False}, {}, "mig", "it is not cut into instances"),
        ({}, {"can_start_mps": False}, "mps", "no nvidia-cuda-mps-control on the PATH"),
        ({}, {"can_start_mps": False, "mps_owner": 0}, "mps", ""),  # somebody else started it
        ({}, {"mps_owner": 1000}, "mps", ""),
        ({}, {"mps_owner": 1001}, "mps", "is of uid 1001 and serves no other"),
        ({}, {"mps_owner": 1001}, "mps+green", "is of uid 1001"),
        ({"is_software": True}, {"can_start_mps": False, "software_mps": True}, "mps", ""),
        ({}, {"cuda_version": 12040}, "mps+green", "need CUDA 12.5, but the driver has 12.4"),
        ({}, {"cuda_version": 12030}, "mps", ""),
        ({}, {"cuda_version": 12050}, "mps+green", ""),
        ({"sm_count": 8, "major": 9}, {}, "mps+green", "two sets of SMs take 16 SMs, but it has 8"),
        ({"sm_count": 16, "major": 9}, {}, "mps+green", ""),
        ({"sm_count": 8, "major": 8}, {}, "mps+green", ""),
    ],
)
def test_what_keeps_a_mode_from_working_is_told(gpu, machine, mode, why):
    found = objections(GpuFacts(index=0, **gpu), replace(WHOLE, **machine))

    assert list(found) == ["time", "mps", "mps+green", "mig"]
    assert why in found[mode]
    assert bool(found[mode]) is bool(why)
    assert all(len(text) < 80 for text in found.values())  # short enough to be part of a refusal


def test_the_doctor_warns_where_jobs_cannot_share_and_says_what_to_do(monkeypatch, tmp_path):
    gpus = [
        GpuFacts(index=0),
        GpuFacts(index=1, compute_mode=3),
        GpuFacts(index=2, has_mig_on=True),
    ]
    monkeypatch.setattr(_fitness, "gpus_of_nvml", lambda: gpus)
    monkeypatch.setattr(_fitness, "machine_of", lambda *_: WHOLE)

    machine = SimpleNamespace(place=SimpleNamespace(path=tmp_path), tell=None)
    found = list(check_modes(machine))

    assert [one.text for one in found[:2]] == ["can work", "can work"]
    assert found[2].text == "can work; not tried: mps does not run"
    worst = {one.check: one for one in found if one.level == WARN}
    assert "gpu 1, mode time" in worst
    assert worst["gpu 1, mode time"].remedy == "nvidia-smi -i 1 -c DEFAULT, or configure mode mps"
    assert {f"gpu 2, mode {mode}" for mode in ("time", "mps", "mps+green", "mig")} <= worst.keys()
    assert "turn MIG off with 2=off" in worst["gpu 2, mode mig"].remedy
