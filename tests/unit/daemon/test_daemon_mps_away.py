"""What the daemon makes of MPS that is away for a moment: its wiring, with edges that are told."""

from types import SimpleNamespace

import pytest

from tandemd.config import load
from tandemd.core.model import Split
from tandemd.core.scheduler import Scheduler
from tandemd.daemon import Daemon
from tandemd.edges.gpus import Gpu
from tandemd.edges.set_proof import Proof

GPU = Gpu(index=0, uuid=bytes(16), product_name="NVIDIA H200", sm_count=132)
SETS = Split(groups=16, group_sms=8)


class Mps:
    """Its control daemon is there, or not."""

    def __init__(self, place):
        self.directory = self._place = place

    def variables(self):
        return {"CUDA_MPS_PIPE_DIRECTORY": str(self.directory)} if self.directory else {}

    def goes(self):
        self.directory = None

    def comes_back(self):
        self.directory = self._place


@pytest.fixture
def daemon(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path / "nothing-here"))
    config = tmp_path / "config.toml"
    config.write_text('[gpu."*"]\nmode = "mps+green"\n')
    made = Daemon(config=load(config), directory=None, soft_clock=False)
    made._inventory = SimpleNamespace(gpus=lambda: [GPU])
    made._why_not = {}
    made._mps = Mps(tmp_path)
    made._proofs = SimpleNamespace(
        want=lambda gpus, again: None, of=lambda gpus: {gpu.index: Proof(SETS) for gpu in gpus}
    )
    scheduler = Scheduler(made._with_sets(made._options(made._config)))
    made._loop = SimpleNamespace(
        scheduler=scheduler,
        clock=SimpleNamespace(now_ns=lambda: 1),
        handle=scheduler.handle,
        perform=lambda action: None,
        post=lambda errand: errand(),
    )
    return made


def test_sets_are_back_with_mps(daemon):
    core = daemon._loop.scheduler
    assert core.options.splits == {0: SETS}
    daemon._mps.goes()
    daemon._tell_of_sets()  # another GPU's proof has come out
    assert core.options.splits == {}

    daemon._mps.comes_back()
    daemon._tell_of_mps("mps runs again", 0.0)

    assert core.options.splits == {0: SETS}


def test_a_proof_has_mps_or_none_is_made(daemon):
    place = str(daemon._mps.directory)
    assert daemon._environment_of_proof(GPU)["CUDA_MPS_PIPE_DIRECTORY"] == place

    daemon._mps.goes()

    assert daemon._environment_of_proof(GPU) is None
