"""`tandem env`: the variables that another launcher has to set."""

import json
import os
import shlex
import subprocess

import pytest
from click.testing import CliRunner

from tandem import _environment, _launch, _paths
from tandem._attach import Refused, Registered, Request, UntrustedError
from tandem.cli.env import env
from tandem.errors import StateError, UsageError

ODD = 'it\'s \\ $HOME "x"'


@pytest.fixture
def heard(monkeypatch):
    """Make a daemon answer; returns what it was asked."""
    asked = []

    def answers(answer):
        def register(path, request, *, command, gpu, timeout_s):
            asked.append((str(path), request, gpu))
            return answer

        monkeypatch.setattr(_launch._attach, "register", register)
        return asked

    return answers


def printed(*words, present=None):
    present = {"TANDEM_RUNTIME_DIR": "/run/mine", **(present or {})}
    clean = dict.fromkeys([k for k in os.environ if k.startswith(("TANDEM_", "CUDA_DEVICE_"))])
    done = CliRunner().invoke(env, words, env=clean | present, catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_it_is_what_run_sets_and_where_the_daemon_is(shim, heard):
    heard(Registered(job_id=0))

    text = printed("-p", "batch", "-m", "40%", "-i", "1", "--json", present={"LD_PRELOAD": "/a.so"})

    assert json.loads(text) == {
        "TANDEM_PRIORITY": "batch",
        "TANDEM_MEMORY": "40%",
        "LD_PRELOAD": f"{shim}:/a.so",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "1",
        "TANDEM_RUNTIME_DIR": "/run/mine",
    }


def test_what_is_set_already_is_printed_too(shim, heard):
    heard(Registered(job_id=0))

    present = {"TANDEM_GROUP": "team", "LD_PRELOAD": str(shim)}

    said = json.loads(printed("--json", present=present))
    assert (said["TANDEM_GROUP"], said["LD_PRELOAD"]) == ("team", str(shim))


@pytest.mark.parametrize(
    ("present", "memory", "sm"),
    [
        ({"CUDA_DEVICE_MEMORY_LIMIT": "3000m", "CUDA_DEVICE_SM_LIMIT": "30"}, "3000MiB", "30%"),
        ({"CUDA_DEVICE_MEMORY_LIMIT_0": "3g", "CUDA_DEVICE_MEMORY_LIMIT": "1g"}, "3GiB", None),
        ({"CUDA_DEVICE_MEMORY_LIMIT_0": "0", "CUDA_DEVICE_SM_LIMIT": "0"}, None, None),
        ({"CUDA_DEVICE_SM_LIMIT": "100", "CUDA_DEVICE_MEMORY_LIMIT_1": "1g"}, None, None),
        ({"CUDA_DEVICE_MEMORY_LIMIT": "3g", "TANDEM_MEMORY": "2GiB"}, "2GiB", None),
        ({"CUDA_DEVICE_SM_LIMIT_0": "30%", "TANDEM_SM": "8"}, None, "8"),
        ({"CUDA_DEVICE_SM_LIMIT": "30", "TANDEM_SM": ""}, None, "30%"),
    ],
)
def test_limits_as_hami_says_them_are_taken_where_ours_are_not_said(
    shim, heard, present, memory, sm
):
    heard(Registered(job_id=0))

    said = json.loads(printed("--json", present=present))

    assert (said.get("TANDEM_MEMORY"), said.get("TANDEM_SM")) == (memory, sm)


def test_an_option_goes_before_what_hami_is_told(shim, heard):
    heard(Registered(job_id=0))

    said = json.loads(printed("--json", "-m", "4GiB", present={"CUDA_DEVICE_MEMORY_LIMIT": "3g"}))

    assert said["TANDEM_MEMORY"] == "4GiB"


def test_the_daemon_is_asked_and_no_job_comes_of_it(shim, heard):
    asked = heard(Registered(job_id=0, environment={"CUDA_MPS_PIPE_DIRECTORY": "/mps"}))

    said = json.loads(printed("--json", "-J", "x"))

    [(path, request, _)] = asked
    assert (path, request.only_asks, request.name) == ("/run/mine/attach.sock", True, "x")
    assert said["CUDA_MPS_PIPE_DIRECTORY"] == "/mps"
    assert "TANDEM_JOB_ID" not in said


def test_of_memory_what_the_user_may_have_is_said(shim, heard):
    heard(Registered(job_id=0, environment={"TANDEM_MEMORY": "20GiB", "PATH": "/theirs"}))

    said = json.loads(printed("--json", "-m", "30GiB"))

    assert (said["TANDEM_MEMORY"], "PATH" in said) == ("20GiB", False)


def test_an_objection_of_the_daemon_is_a_warning(shim, heard, capsys):
    heard(Refused(code=7, reason="it asks for 9 SMs, but gpu 0 has 8"))

    variables = _launch.environment(Request(sm_count=9), {}, uid=0)

    assert variables["TANDEM_SM"] == "9"
    assert "would refuse this job: it asks for 9 SMs" in capsys.readouterr().err


def test_a_daemon_that_is_not_trusted_is_not_called_none(shim, monkeypatch, capsys):
    def register(*_args, **_options):
        raise UntrustedError("/tmp/lab/attach.sock: the daemon belongs to uid 1001")

    monkeypatch.setattr(_launch._attach, "register", register)
    _launch.environment(Request(), {}, uid=0)

    assert capsys.readouterr().err == (
        "tandem: cannot show what a daemon would set: /tmp/lab/attach.sock: the daemon belongs to "
        "uid 1001\n"
    )


@pytest.mark.parametrize("form", ["sh", "slurm", "file"])
def test_the_lines_of_a_format(shim, heard, form):
    heard(Registered(job_id=0))

    lines = printed("--format", form, "-J", ODD).splitlines()

    quoted = shlex.quote(ODD) if form == "sh" else ODD
    before = "" if form == "file" else "export "
    assert lines[0] == f"{before}TANDEM_NAME={quoted}"


def test_a_shell_takes_every_value_as_it_is(shim, heard):
    heard(Registered(job_id=0))

    script = printed("-J", ODD) + 'unset LD_PRELOAD\nprintf %s "$TANDEM_NAME"'

    assert subprocess.check_output(["/bin/sh", "-c", script], text=True) == ODD


def test_fish_has_an_escape_of_its_own(shim, heard):
    heard(Registered(job_id=0))

    assert printed("--format", "fish", "-J", "a'\\").startswith("set -gx TANDEM_NAME 'a\\'\\\\'\n")


def test_what_contradicts_itself_is_refused(shim):
    with pytest.raises(UsageError, match="has no meaning without"):
        _launch.environment(Request(persistent_bytes=1), {}, uid=0)


def test_an_instance_needs_a_daemon_that_knows_it(shim, heard):
    heard(Registered(job_id=0, environment={"CUDA_VISIBLE_DEVICES": "MIG-7"}))
    assert _launch.environment(Request(), {}, uid=0, gpu="0:1")["CUDA_VISIBLE_DEVICES"] == "MIG-7"

    heard(Registered(job_id=0))
    with pytest.raises(StateError, match="no daemon says which device '0:1' is"):
        _launch.environment(Request(), {}, uid=0, gpu="0:1")


def test_the_place_of_the_daemon_is_named_unless_all_look_there(tmp_path, monkeypatch):
    monkeypatch.setattr(_paths, "SYSTEM", tmp_path / "system")
    nobody = 4_000_000_000  # a user without /tmp/tandem-<uid>
    own = tmp_path / "xdg" / "tandem"
    named = {"XDG_RUNTIME_DIR": str(tmp_path / "xdg")}

    def found(environ):
        return _paths.to_be_named(environ, uid=nobody)

    assert found({"TANDEM_SOCKET": "/s"}) == {"TANDEM_SOCKET": "/s"}
    assert found({"TANDEM_RUNTIME_DIR": "/r"}) == {"TANDEM_RUNTIME_DIR": "/r"}
    assert found({"TANDEM_RUNTIME_DIR": str(tmp_path / "system")}) == {}
    assert found(named) == {}  # only a guess: no daemon is there
    own.mkdir(parents=True)
    (own / "attach.sock").touch()
    monkeypatch.setattr(_paths, "_trusted", lambda *_, **__: True)
    assert found(named) == {"TANDEM_RUNTIME_DIR": str(own)}


def test_its_requests_are_those_of_the_shim():
    """The shim reads each variable of a request."""
    whole = Request(priority="batch", memory_bytes=1, sm_count=2, checkpoint=True, group="g")
    settings = (_paths.SHIM.parents[2] / "shim/job/settings.cpp").read_text()

    for name in _environment.request_environment(whole):
        assert f'"{name}"' in settings
