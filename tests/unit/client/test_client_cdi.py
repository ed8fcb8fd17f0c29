"""`tandem cdi`: the files that container engines read."""

import json
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tandem import _cdi, _paths
from tandem.cli.cdi import cdi
from tandem.errors import StateError, UsageError

# Syntax of names, kinds and variables in the CDI specification 0.3.0.
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
KIND = re.compile(
    r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?"
)


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """No daemon runs, and none has a directory."""
    monkeypatch.setattr(_paths, "SYSTEM", tmp_path / "system")
    for name in [name for name in os.environ if name.startswith(("TANDEM_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    return tmp_path / "system"


def said(*words):
    done = CliRunner().invoke(cdi, ["generate", *words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def variables(spec, device):
    (found,) = [one for one in spec["devices"] if one["name"] == device]
    return dict(one.split("=", 1) for one in found["containerEdits"]["env"])


def mounts(spec):
    return {m["containerPath"]: m for m in spec["containerEdits"]["mounts"]}


def test_there_is_a_device_for_each_priority_and_one_for_none(shim, nowhere):
    spec = json.loads(said("-m", "20GiB", "--slo", "p99=50ms", "--return-memory"))

    assert spec["cdiVersion"] == "0.3.0"
    assert KIND.fullmatch(spec["kind"])
    names = [device["name"] for device in spec["devices"]]
    assert names == ["any", "latency", "normal", "batch"]
    assert all(map(NAME.fullmatch, names))
    every = {
        "TANDEM_MEMORY": "20GiB",
        "TANDEM_SLO": "p99=50ms",
        "PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync",
        "TANDEM_RUNTIME_DIR": str(nowhere),
    }
    assert variables(spec, "any") == every
    assert variables(spec, "batch") == every | {"TANDEM_PRIORITY": "batch"}


def test_a_priority_that_was_asked_for_is_that_of_any(shim, nowhere):
    spec = json.loads(said("-p", "batch"))

    assert variables(spec, "any")["TANDEM_PRIORITY"] == "batch"
    assert variables(spec, "latency")["TANDEM_PRIORITY"] == "latency"


def test_the_library_is_where_the_file_that_names_it_says(shim, nowhere):
    found = mounts(json.loads(said()))

    preload = found["/etc/ld.so.preload"]
    named = Path(preload["hostPath"]).read_text().strip()
    assert found[named]["hostPath"] == str(shim)
    assert found[str(nowhere)]["hostPath"] == str(nowhere)
    assert len(found) == 3
    assert all({"ro", "bind"} <= set(mount["options"]) for mount in found.values())


def test_a_daemon_elsewhere_is_found_inside(shim, nowhere, monkeypatch):
    monkeypatch.setenv("TANDEM_RUNTIME_DIR", "/srv/tandem")
    by_directory = json.loads(said())
    monkeypatch.setenv("TANDEM_SOCKET", "/srv/other/attach.sock")
    by_socket = json.loads(said())

    assert variables(by_directory, "any") == {"TANDEM_RUNTIME_DIR": "/srv/tandem"}
    assert "/srv/tandem" in mounts(by_directory)
    assert variables(by_socket, "any") == {"TANDEM_SOCKET": "/srv/other/attach.sock"}
    assert "/srv/other" in mounts(by_socket)


def test_it_is_written_whole(shim, nowhere, tmp_path):
    said("-o", str(tmp_path / "tandem.json"))

    assert json.loads((tmp_path / "tandem.json").read_text())["kind"] == _cdi.KIND


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("-i", "0"), "--gpu '0' means nothing in a container"),
        (("-o", "/no/such/folder/tandem.json"), "cannot write '/no/such/folder/tandem.json'"),
        (("--persistent", "1GiB"), "--persistent has no meaning without --ephemeral"),
    ],
)
def test_what_makes_no_sense_is_told(words, complaint, shim, nowhere):
    with pytest.raises(UsageError, match=re.escape(complaint)):
        said(*words)


def test_without_the_library_or_a_directory_nothing_is_written(shim, nowhere, monkeypatch):
    monkeypatch.setenv("TANDEM_RUNTIME_DIR", "/")
    with pytest.raises(StateError, match="cannot be mounted"):
        said()
    shim.unlink()
    with pytest.raises(StateError, match=r"libtandem\.so is missing"):
        said()
