"""csrc/ninja_build.py writes the same for the same sources, whatever lies beside them."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "csrc"))

import ninja_build


def test_what_python_leaves_beside_sources_changes_no_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "shim/job").mkdir(parents=True)
    (tmp_path / "shim/driver.h").touch()
    (tmp_path / "shim/job/helper.h").touch()
    monkeypatch.setattr(ninja_build, "ROOT", tmp_path)
    before = ninja_build._folders("shim")

    (tmp_path / "shim/__pycache__").mkdir()
    (tmp_path / "shim/__pycache__/entries.pyc").touch()

    assert ninja_build._folders("shim") == before == "-iquote shim -iquote shim/job"


@pytest.mark.parametrize(("said", "is_error"), [("1", True), ("", False)])
def test_a_warning_is_an_error_where_that_is_asked_for(monkeypatch, said, is_error):
    monkeypatch.setenv(ninja_build.STRICT, said)

    assert any("-Werror" in line for line in ninja_build._compilers("release")) is is_error
