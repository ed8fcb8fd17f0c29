"""`tandem kernelspec`: the files that Jupyter reads."""

import importlib.util
import json
import sys

import pytest
from click.testing import CliRunner

from tandem import _launch
from tandem._attach import Refused, Registered
from tandem.cli.kernelspec import kernelspec
from tandem.errors import NotFoundError, StateError, UnavailableError, UsageError
from tandemd.core.effects import no_release
from tandemd.core.model import JobSpec


@pytest.fixture
def data(tmp_path, monkeypatch):
    """The user's Jupyter folder; an ipykernel is installed."""
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("JUPYTER_PATH", raising=False)
    monkeypatch.delenv("TANDEM_SOCKET", raising=False)
    monkeypatch.setenv("TANDEM_RUNTIME_DIR", "/run/mine")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    return tmp_path / "data"


def said(*words):
    done = CliRunner().invoke(kernelspec, words, catch_exceptions=True)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def written(folder, name="tandem-python3"):
    return json.loads((folder / "kernels" / name / "kernel.json").read_text())


def test_the_kernel_starts_through_run_and_asks_by_its_variables(data):
    idle = ("--swappable", "--idle-release", "never")
    said("install", "-p", "batch", "-m", "40%", "-i", "0", "--return-memory", *idle)

    spec = written(data)
    at = spec["argv"].index("--")
    assert spec["argv"][:at] == [sys.executable, "-P", "-m", "tandem.cli", "run", "-i", "0"]
    assert spec["argv"][at + 1] == sys.executable
    assert spec["argv"][-3:] == ["ipykernel_launcher", "-f", "{connection_file}"]
    assert spec["language"] == "python"
    assert spec["env"] == {
        "TANDEM_PRIORITY": "batch",
        "TANDEM_MEMORY": "40%",
        "TANDEM_SWAPPABLE": "1",
        "TANDEM_IDLE_RELEASE": "never",
        "TANDEM_NAME": "tandem-python3",
        "TANDEM_RUNTIME_DIR": "/run/mine",
        "TANDEM_RETURN_MEMORY": "1",
    }


def test_what_jupyter_would_replace_is_escaped(data):
    said("install", "-G", "$HOME")

    assert written(data)["env"]["TANDEM_GROUP"] == "$$HOME"


def test_where_it_is_installed(data, tmp_path):
    said("install", "--prefix", str(tmp_path / "p"))
    said("install", "--sys-prefix")

    for prefix in ("p", "venv"):
        assert written(tmp_path / prefix / "share/jupyter")["language"] == "python"
    assert not data.exists()


def test_without_a_folder_of_jupyter_it_is_where_xdg_says(data, tmp_path, monkeypatch):
    monkeypatch.delenv("JUPYTER_DATA_DIR")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))

    said("install")

    assert written(tmp_path / "xdg/jupyter")


def test_two_places_are_refused(data):
    with pytest.raises(UsageError, match="give only one of"):
        said("install", "--user", "--sys-prefix")


def test_one_that_is_there_stays_unless_it_is_to_be_replaced(data):
    said("install", "-p", "batch")

    with pytest.raises(StateError, match="already; add --replace"):
        said("install", "-p", "latency")
    assert written(data)["env"]["TANDEM_PRIORITY"] == "batch"

    said("install", "-p", "latency", "--replace")
    assert written(data)["env"]["TANDEM_PRIORITY"] == "latency"


@pytest.mark.parametrize("name", ["a b", "../x", "Ä", ""])
def test_a_name_that_is_none_for_a_kernel_is_refused(data, name):
    with pytest.raises(UsageError, match="may contain only the letters a-z"):
        said("install", "--name", name)
    assert not data.exists()


def test_an_interpreter_without_ipykernel_is_refused_with_the_remedy(data, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(StateError, match=r"has no ipykernel.*pip install ipykernel"):
        said("install")


def test_only_ours_are_listed_and_removed(data):
    said("install", "--name", "mine")
    for name, text in (("other", '{"argv": [], "display_name": "x"}'), ("broken", "{")):
        (data / "kernels" / name).mkdir()
        (data / "kernels" / name / "kernel.json").write_text(text)

    assert [spec["name"] for spec in json.loads(said("list", "--json"))] == ["mine"]
    assert "TANDEM_NAME=mine" in said("list")
    with pytest.raises(NotFoundError, match="Tandem has no kernel 'other'"):
        said("remove", "other")
    assert said("remove", "mine") == f"removed {data}/kernels/mine\n"
    assert sorted(p.name for p in (data / "kernels").iterdir()) == ["broken", "other"]


@pytest.fixture
def answer(monkeypatch):
    """Make a daemon answer; None: there is no daemon."""

    def set_(value):
        def register(path, request, *, command, gpu, timeout_s):
            assert request.only_asks
            if value is None:
                raise UnavailableError("no daemon")
            return value

        monkeypatch.setattr(_launch._attach, "register", register)

    return set_


def test_without_a_daemon_what_has_no_effect_is_said_in_its_words(data, answer, capsys):
    answer(None)

    said("install", "--swappable", "--idle-release", "60s")
    assert capsys.readouterr().err == ""

    done = CliRunner().invoke(kernelspec, ["install", "--idle-release", "60s", "--replace"])
    words = no_release(JobSpec(idle_release_ns=60 * 10**9))
    assert done.exit_code == 0
    assert done.stderr == (
        f"tandem: warning: {words}, unless class.<name>.memory_swap is configured\n"
    )
    assert written(data)["env"]["TANDEM_IDLE_RELEASE"] == "60s"


@pytest.mark.parametrize(
    ("reply", "warning"),
    [
        (Registered(job_id=0), ""),
        (Registered(job_id=0, told=("it has no effect",)), "it has no effect"),
        (
            Refused(code=7, reason="it asks for 9 SMs"),
            "the daemon would refuse this job: it asks for 9",
        ),
    ],
)
def test_a_daemon_says_itself_what_it_objects_to(data, answer, reply, warning):
    answer(reply)

    done = CliRunner().invoke(kernelspec, ["install", "--idle-release", "60s"])

    assert done.exit_code == 0
    assert done.stderr.count("\n") == bool(warning)
    assert warning in done.stderr
