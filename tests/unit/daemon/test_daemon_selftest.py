"""What the daemon finds out about the modes of its GPUs at startup."""

from dataclasses import replace

from tandem import _fitness
from tandem._fitness import GpuFacts, Machine
from tandemd.edges.gpus import Gpu, Instance
from tandemd.selftest import why_not

WHOLE = Gpu(index=0, uuid=bytes(16))
PART = replace(WHOLE, index=137, instance=Instance(gpu=1, gpu_instance=1))


def test_every_gpu_and_instance_has_its_own_reasons(monkeypatch, tmp_path):
    facts = [GpuFacts(index=0, compute_mode=3), GpuFacts(index=1, has_mig_on=True, instances=1)]
    monkeypatch.setattr(_fitness, "gpus_of_nvml", lambda: facts)
    monkeypatch.setattr(_fitness, "machine_of", lambda *_: Machine(uid=0, can_start_mps=True))

    found = why_not([WHOLE, PART], {}, tmp_path)

    assert "exclusive-process" in found[0]["time"]
    assert found[0]["mps"] == found[137]["mig"] == ""
    assert found[137]["time"] == found[137]["mps"] == "it is an instance of MIG"


def test_a_machine_that_says_nothing_has_no_reasons(monkeypatch, tmp_path):
    def silent():
        raise OSError("no driver")

    monkeypatch.setattr(_fitness, "gpus_of_nvml", silent)

    assert why_not([WHOLE], {}, tmp_path) == {}
