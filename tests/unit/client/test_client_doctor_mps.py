"""What `tandem doctor` says of MPS."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tandem import _doctor
from tandem._doctor import OK, check_gpu_modes, check_mps


@pytest.fixture
def told(tmp_path, monkeypatch):
    """The text, with this script as the control program; None: there is none."""

    def look(script, *, pipe=True):
        programs, usual = tmp_path / "bin", tmp_path / "usual"
        for folder in (programs, usual):
            folder.mkdir(exist_ok=True)
        program = programs / "nvidia-cuda-mps-control"
        if script is not None:
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)
        if pipe:
            (usual / "control").touch()
        monkeypatch.setenv("PATH", str(programs))
        monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(usual))
        machine = SimpleNamespace(place=SimpleNamespace(path=Path("/nowhere")))
        (found,) = check_mps(machine)
        assert (found.check, found.level) == ("mps", OK)
        return found.text

    return look


def test_servers_of_a_running_control_daemon_are_told(told, tmp_path):
    text = told("echo 17; echo 23")

    assert text == f"a control daemon answers in {tmp_path / 'usual'}; servers: 17 23"
    assert told("exit 0").endswith("servers: none")


def test_a_pipe_that_nobody_answers_at_is_no_mps(told):
    assert told("exit 0", pipe=False).startswith("it does not run; in mode mps")
    assert told("exit 1").startswith("it does not run; in mode mps")


def test_a_machine_without_the_program_cannot_have_it(told):
    assert told(None).startswith("no nvidia-cuda-mps-control on the PATH")


def test_settings_that_keep_jobs_from_sharing_a_gpu_are_told(monkeypatch):
    monkeypatch.setattr(_doctor, "_modes_of_nvml", lambda: [(0, False), (3, False), (0, True)])

    exclusive, mig = check_gpu_modes(SimpleNamespace())

    assert exclusive.text.startswith("gpu 1 is in compute mode exclusive-process: a second job")
    assert exclusive.remedy == "nvidia-smi -i 1 -c DEFAULT, or mode mps"
    assert mig.text.startswith("gpu 2 has MIG on: its instances count as gpus of their own")
