"""The listing of the effective configuration."""

import json
import re
from pathlib import Path

import pytest

from tandem.errors import UsageError
from tandemd.config.listing import listing

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.fixture
def listed(tmp_path):
    """Return each key's value and file, for this main file and this drop-in."""

    def listed(main, drop_in=""):
        path = tmp_path / "config.toml"
        path.write_text(main)
        (tmp_path / "config.d").mkdir()
        (tmp_path / "config.d" / "50-team.toml").write_text(drop_in)
        items = json.loads(listing(path))
        names = {str(path): "main", str(tmp_path / "config.d" / "50-team.toml"): "drop-in"}
        return {i["key"]: (i["value"], names.get(i["origin"], i["origin"])) for i in items}

    return listed


def test_the_last_file_that_says_a_key_is_its_origin(listed):
    found = listed(
        "[scheduler]\nquantum_ms = 5\npolicy = 'fair'\n", "[scheduler]\npolicy = 'fifo'\n"
    )

    assert found["scheduler.quantum_ms"] == (5, "main")
    assert found["scheduler.policy"] == ("fifo", "drop-in")
    assert found["scheduler.drain_ms"] == (250, None)


def test_classes_are_whole_and_who_is_named_is_there(listed):
    found = listed(
        "[class.batch]\nmemory_swap = true\n[limits.user.ann]\nmax_class = 'latency'\n"
        "[gpu.'*']\nmode = 'time'\n"
    )

    assert found["class.batch.memory_swap"] == (True, "main")
    assert found["class.batch.weight"] == (1, None)
    assert found["class.latency.weight"] == (8, None)
    assert found["limits.user.ann.max_class"] == ("latency", "main")
    assert found["gpu.*.mode"] == ("time", "main")


def test_what_is_wrong_is_refused_as_ever(listed):
    with pytest.raises(UsageError, match=r"config\.toml: scheduler\.polcy: unknown key"):
        listed("[scheduler]\npolcy = 1\n")


def test_the_docs_name_every_key(listed):
    keys = set(re.sub(r"class\.\w+\.", "class.<name>.", "\n".join(listed(""))).split())
    text = (DOCS / "config.md").read_text()

    def is_there(key):
        table, _, name = key.rpartition(".")
        section = text.partition(f"## `[{table}]`")[2].partition("\n## ")[0]
        return re.search(rf"^\| `{name}` \| .+ \| .* \| \S.+ \|$", section, re.MULTILINE)

    assert sorted(key for key in keys - {"version"} if not is_there(key)) == []
    assert "| None |" not in text
