"""`tandem config`, which asks the tandemd of the installation."""

import json

import pytest


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "team.toml"
    path.write_text('[scheduler]\npolicy = "fair"\n')
    return path


def test_show_tells_values_and_where_they_come_from(tandem, file):
    lines = tandem("config", "show", "--origin", file).stdout.splitlines()
    said = [line for line in lines if not line.startswith("built-in ")]
    items = json.loads(tandem("config", "show", "--json", file).stdout)

    assert said == [f'{file}  scheduler.policy = "fair"']
    assert {"key": "scheduler.policy", "value": "fair", "origin": str(file)} in items
    assert len(items) == len(lines)


def test_check_says_whether_it_is_valid(tandem, file):
    valid = tandem("config", "check", file)
    file.write_text("[scheduler]\npolcy = 1\n")
    wrong = tandem("config", "check", file)

    assert (valid.returncode, valid.stdout) == (0, f"the configuration is valid: {file}\n")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == f"error: {file}: scheduler.polcy: unknown key; did you mean policy?\n"
    assert tandem("config", "show", file).returncode == 2
