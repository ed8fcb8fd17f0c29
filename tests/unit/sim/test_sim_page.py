"""The simulator's page shows the figures that the simulator reports."""

import re
from pathlib import Path

import pytest

from tandemd.sim.__main__ import main
from tandemd.sim.workload import GpuTable, JobTable, ServingTable, TrainingTable

PAGE = Path(__file__).resolve().parents[3] / "docs" / "simulator.md"


@pytest.mark.slow
def test_the_example_comes_out_as_it_is_shown(tmp_path, monkeypatch, capsys):
    text = PAGE.read_text()
    (toml,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    ((words, shown),) = re.findall(
        r"```console\n\$ python -m tandemd.sim (.*?)\n(.*?)```", text, re.DOTALL
    )
    monkeypatch.chdir(tmp_path)
    Path("jobs.toml").write_text(toml)

    main(words.split())

    assert capsys.readouterr().out == shown


def test_each_key_is_on_the_page():
    said = set(re.findall(r"`(\w+)(?: = [^`]*)?`", PAGE.read_text()))
    for table in (GpuTable, JobTable, TrainingTable, ServingTable):
        keys = {field.alias or name for name, field in table.model_fields.items()}
        assert keys <= said, table
