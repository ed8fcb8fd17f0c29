"""What a configuration says of GPUs, compared with those of the machine."""

from types import SimpleNamespace

import pytest
import structlog

from tandem.errors import UsageError
from tandemd import __main__ as program
from tandemd.config import load
from tandemd.daemon import Daemon
from tandemd.edges.gpus import Gpu, Instance

GPU = Gpu(index=0, uuid=bytes(16))
SLICE = Gpu(index=64, uuid=bytes([1] * 16), instance=Instance(gpu=1, gpu_instance=2))


@pytest.fixture
def written(tmp_path):
    def write(*names):
        path = tmp_path / "config.toml"
        path.write_text("".join(f"[gpu.'{name}']\nmode = 'time'\n" for name in names))
        return load(path)

    return write


def here(monkeypatch, *gpus):
    inventory = SimpleNamespace(gpus=lambda: gpus)
    monkeypatch.setattr(program, "find_inventory", lambda: inventory)
    return inventory


def test_sections_of_gpus_that_are_here_are_right(monkeypatch, written):
    here(monkeypatch, GPU, SLICE)
    cut = "GPU-aaaaaaaa-0000-0000-0000-000000000000"  # may be that of the one that is cut

    program.check(written("*", "0", "1", GPU.uuid_text, SLICE.uuid_text, cut))


def test_the_check_refuses_sections_of_gpus_that_are_not_here(monkeypatch, written):
    other = "GPU-aaaaaaaa-0000-0000-0000-000000000000"
    here(monkeypatch, GPU)

    with pytest.raises(UsageError, match=f"gpu.7, gpu.{other}: no such gpu .* there are 0, whose"):
        program.check(written("0", "7", other))


def test_where_no_gpu_is_seen_nothing_is_known_of_sections(monkeypatch, written):
    here(monkeypatch)

    program.check(written("7"))


def test_the_daemon_warns_of_them_and_goes_on(monkeypatch, written):
    config = written("7")
    daemon = Daemon(config=config, directory=None, soft_clock=False)
    daemon._inventory = here(monkeypatch, GPU)

    with structlog.testing.capture_logs() as logs:
        daemon._warn_of_unknown(config)

    assert [entry["log_level"] for entry in logs] == ["warning"]
    assert "gpu.7: no such gpu" in logs[0]["reason"]
