"""Which mode the daemon takes a GPU to be in."""

import os
from dataclasses import replace

import pytest

from tandem._mps import PIPES, PROGRAM
from tandem.errors import UsageError
from tandemd.config.config import Config, load
from tandemd.edges.gpus import Gpu, Instance
from tandemd.edges.modes import found_mode

REAL = Gpu(index=0, uuid=bytes(16), product_name="NVIDIA H200")
SOFTWARE = Gpu(index=0, uuid=bytes(16), product_name="Tandem Software GPU (tiny)")


@pytest.fixture
def environment(tmp_path):
    """The environment of programs that look for MPS in `pipes`, with its executable on PATH."""
    for name in ("bin", "pipes"):
        (tmp_path / name).mkdir()
    (tmp_path / "bin" / PROGRAM).touch(mode=0o755)
    return {"PATH": str(tmp_path / "bin"), PIPES: str(tmp_path / "pipes")}


def test_a_control_daemon_of_mps_is_found_by_its_pipe(tmp_path, environment):
    assert found_mode(REAL, environment) == "time"

    os.mkfifo(tmp_path / "pipes" / "control")

    assert found_mode(REAL, environment) == "mps"


def test_a_file_or_what_nobody_can_be_asked_about_is_no_mps(tmp_path, environment):
    (tmp_path / "pipes" / "control").touch()
    assert found_mode(REAL, environment) == "time"

    (tmp_path / "pipes" / "control").unlink()
    os.mkfifo(tmp_path / "pipes" / "control")

    assert found_mode(REAL, environment | {"PATH": "/nowhere"}) == "time"


def test_the_software_gpu_has_a_mode_of_its_own(environment):
    environment |= {"TANDEM_SOFTGPU_MODE": "mps"}

    assert found_mode(SOFTWARE, environment) == "mps"
    assert found_mode(REAL, environment) == "time"


def test_an_instance_of_mig_is_in_mode_mig_whatever_runs_beside_it(tmp_path, environment):
    os.mkfifo(tmp_path / "pipes" / "control")
    instance = replace(REAL, instance=Instance(gpu=0, gpu_instance=1))

    assert found_mode(instance, environment) == "mig"


def test_what_is_said_of_one_gpu_wins_over_what_is_said_of_all(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(
        f'[gpu."*"]\nmode = "mps"\n[gpu.1]\nmode = "time"\n[gpu.{REAL.uuid_text}]\nmode = "auto"\n'
    )
    config = load(path)

    modes = [config.mode_of(index, uuid) for index, uuid in ((0, ""), (1, ""), (1, REAL.uuid_text))]

    assert modes == ["mps", "time", "auto"]
    assert Config().mode_of(0, "") == "auto"


def test_a_mode_that_is_none_is_refused(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text('[gpu."*"]\nmode = "mpx"\n')

    with pytest.raises(UsageError, match=r"'auto', 'time', 'mps' or 'mps\+green'"):
        load(path)
