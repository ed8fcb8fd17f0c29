"""Programs that the parts of `make gpu` compile: once per run, and never partially."""

from pathlib import Path

import pytest
from bench.gpu.harness import native
from bench.gpu.harness.part import SOFTWARE, Bench

from tandem.demo.place import Place
from tandem.demo.process import WorkerError

KERNEL = 'extern "C" __global__ void none() {}\nTANDEM_KERNEL(none, 0.0, 0.0)\n'


@pytest.fixture
def part(tmp_path, monkeypatch):
    """Begins a part of the run; its programs are in tmp_path."""
    monkeypatch.setattr(native, "HERE", tmp_path)
    made = tmp_path / "made"
    made.mkdir()
    place = Place(
        name="a software GPU",
        kind="software",
        mode="time",
        clock="real",
        image=Path("image"),
        base_env={},
    )
    return lambda: Bench(where=SOFTWARE, place=place, folder=tmp_path, keep=tmp_path, made=made)


def test_a_part_takes_what_another_one_has_compiled(part, tmp_path, monkeypatch):
    (tmp_path / "asks.cpp").write_text("int main() {}\n")
    (tmp_path / "kernels.cu").write_text(KERNEL)
    command = native.command(part(), "asks", "kernels")
    monkeypatch.setenv("PATH", str(tmp_path))  # no compiler on it

    assert native.command(part(), "asks", "kernels") == command
    assert sorted(path.name for path in part().made.iterdir()) == ["asks", "kernels.so"]


def test_what_does_not_compile_leaves_nothing(part, tmp_path):
    (tmp_path / "asks.cpp").write_text("int main() { return nothing; }\n")
    (tmp_path / "kernels.cu").write_text("none")

    with pytest.raises(WorkerError, match=r"asks\.cpp does not compile"):
        native.program(part(), "asks")
    with pytest.raises(WorkerError, match="does not compile"):
        native.kernels(part(), "kernels")
    assert list(part().made.iterdir()) == []
