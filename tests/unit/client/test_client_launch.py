"""What `tandem run` decides before it becomes the command."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from tandem import _doctor, _launch
from tandem._attach import Registered, Request, UntrustedError
from tandem._environment import preload, request_environment
from tandem._launch import Launch, LaunchError, find_program, plan
from tandem.errors import StateError, UsageError


def launch(*command, request=None, **options):
    return Launch(command=command or ("true",), request=request or Request(), extra={}, **options)


def program(folder, name, *, mode=0o755):
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def test_every_request_has_its_variable():
    request = Request(
        priority="batch",
        memory_bytes=1024,
        memory_min_bytes=512,
        sm_percent=30,
        slo_p99_ns=50_000_000,
        preemptible=True,
        name="train",
        group="team",
        persistent_bytes=256,
        ephemeral_bytes=128,
        idle_release_ns=60_000_000_000,
    )

    assert request_environment(request) == {
        "TANDEM_PRIORITY": "batch",
        "TANDEM_MEMORY": "1KiB",
        "TANDEM_MEMORY_MIN": "512B",
        "TANDEM_PERSISTENT": "256B",
        "TANDEM_EPHEMERAL": "128B",
        "TANDEM_SM": "30%",
        "TANDEM_SLO": "p99=50ms",
        "TANDEM_PREEMPTIBLE": "1",
        "TANDEM_IDLE_RELEASE": "60s",
        "TANDEM_NAME": "train",
        "TANDEM_GROUP": "team",
    }


def test_what_was_not_said_sets_nothing():
    assert request_environment(Request()) == {}


def test_shares_of_memory_and_counts_of_sms_are_left_to_the_shim():
    request = Request(memory_percent=40, sm_count=16, isolation="mps")

    assert request_environment(request) == {
        "TANDEM_MEMORY": "40%",
        "TANDEM_SM": "16",
        "TANDEM_ISOLATION": "mps",
    }


def test_the_library_comes_before_what_was_preloaded(shim):
    assert preload(shim, "") == str(shim)
    assert preload(shim, "/a.so:/b.so") == f"{shim}:/a.so:/b.so"
    assert preload(shim, "/a.so /b.so") == f"{shim}:/a.so:/b.so"


def test_the_library_is_preloaded_once_however_deep_runs_are_nested(shim):
    assert preload(shim, preload(shim, "/a.so")) == f"{shim}:/a.so"


def test_a_missing_library_is_said_with_its_remedy(tmp_path):
    with pytest.raises(StateError, match=r"is missing; reinstall .* `make build`"):
        preload(tmp_path / "libtandem.so", "")


@pytest.mark.parametrize("folder", ["a b", "a:b"])
def test_a_path_the_loader_would_split_is_refused(tmp_path, folder):
    library = program(tmp_path / folder, "libtandem.so")

    with pytest.raises(StateError, match="space or colon"):
        preload(library, "")


def test_the_environment_of_a_job(shim):
    environ = {"PATH": os.defpath, "HOME": "/root", "TANDEM_RUNTIME_DIR": "/run/mine"}

    decided = plan(launch("true", gpu="1", require=True), environ, uid=1000)

    assert decided.environ == environ | {
        "LD_PRELOAD": str(shim),
        "TANDEM_SOCKET": "/run/mine/attach.sock",
        "TANDEM_REQUIRE": "1",
        "CUDA_VISIBLE_DEVICES": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    assert Path(decided.program).name == "true"
    assert decided.argv == ["true"]


def test_a_named_socket_is_obeyed(shim):
    environ = {"PATH": os.defpath, "TANDEM_SOCKET": "/s", "TANDEM_RUNTIME_DIR": "/run/mine"}

    assert str(plan(launch(), environ, uid=1000).socket) == "/s"


def test_variables_of_the_command_line_win(shim):
    asked = Launch(command=["true"], request=Request(), extra={"A": "2"})

    decided = plan(asked, {"PATH": os.defpath, "A": "1"}, uid=1000)

    assert decided.environ["A"] == "2"


@pytest.mark.parametrize(("value", "managed"), [("1", False), ("0", True), ("", True)])
def test_disabled_means_neither_shim_nor_registration(shim, value, managed):
    decided = plan(launch(), {"PATH": os.defpath, "TANDEM_DISABLE": value}, uid=1000)

    assert decided.register is managed
    assert ("LD_PRELOAD" in decided.environ) is managed


def test_the_caller_environment_is_not_touched(shim):
    environ = {"PATH": os.defpath}

    plan(launch(request=Request(name="x")), environ, uid=1000)

    assert environ == {"PATH": os.defpath}


def test_the_first_executable_on_the_path_is_found(tmp_path):
    program(tmp_path / "a", "tool", mode=0o644)
    wanted = program(tmp_path / "b", "tool")
    program(tmp_path / "c", "tool")

    assert find_program("tool", path=f"{tmp_path}/a:{tmp_path}/b:{tmp_path}/c") == str(wanted)


def test_an_empty_part_of_the_path_is_the_current_folder(tmp_path, monkeypatch):
    program(tmp_path, "tool")
    monkeypatch.chdir(tmp_path)

    assert find_program("tool", path="/nonexistent:") == "tool"


def test_a_command_that_does_not_exist_is_127():
    for name in ("no-such-command", "/no/such/command", ""):
        with pytest.raises(LaunchError, match="not found") as caught:
            find_program(name, path=os.defpath)
        assert caught.value.exit_code == 127


def test_a_command_that_cannot_be_executed_is_126(tmp_path):
    program(tmp_path / "bin", "tool", mode=0o644)

    for name in (str(tmp_path / "bin" / "tool"), "tool"):
        with pytest.raises(LaunchError, match="not executable") as caught:
            find_program(name, path=f"{tmp_path}/bin")
        assert caught.value.exit_code == 126


def test_a_command_in_a_folder_one_may_not_enter_is_126(monkeypatch):
    def closed(path):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(_launch.os, "stat", closed)  # root could enter every real folder

    with pytest.raises(LaunchError, match="may not enter") as caught:
        find_program("/hidden/tool", path="")
    assert caught.value.exit_code == 126


def test_a_directory_is_126(tmp_path):
    with pytest.raises(LaunchError, match="is a directory") as caught:
        find_program(str(tmp_path), path="")

    assert caught.value.exit_code == 126


def test_a_folder_on_the_path_is_no_command(tmp_path):
    (tmp_path / "tool").mkdir()

    with pytest.raises(LaunchError, match="not found"):
        find_program("tool", path=str(tmp_path))


@pytest.mark.parametrize("option", ["name", "group"])
def test_a_name_that_the_wire_would_cut_is_refused(shim, option):
    fits, too_long = "ä" * 31, "ä" * 32

    plan(launch(request=Request(**{option: fits})), os.environ, uid=0)
    with pytest.raises(UsageError, match="64 bytes; at most 63"):
        plan(launch(request=Request(**{option: too_long})), os.environ, uid=0)


@pytest.mark.parametrize("half", [{"persistent_bytes": 1}, {"ephemeral_bytes": 1}])
def test_half_a_promise_of_memory_is_refused(shim, half):
    with pytest.raises(UsageError, match=r"has no meaning without --(persistent|ephemeral)"):
        plan(launch(request=Request(**half)), {}, uid=1)


def test_no_more_is_kept_than_the_limit(shim):
    kept = {"persistent_bytes": 2 << 30, "ephemeral_bytes": 0}

    plan(launch(request=Request(memory_bytes=2 << 30, **kept)), os.environ, uid=0)
    with pytest.raises(UsageError, match="--persistent 2 GiB is more than --memory 1 GiB"):
        plan(launch(request=Request(memory_bytes=1 << 30, **kept)), os.environ, uid=0)


@pytest.mark.parametrize("name", ["a\x1b[2J", os.fsdecode(b"\xff")])
def test_a_name_that_moves_the_cursor_or_is_no_text_is_refused(shim, name):
    with pytest.raises(UsageError, match="cannot be printed"):
        plan(launch(request=Request(name=name)), os.environ, uid=0)


@pytest.mark.parametrize(
    ("name", "told"), [("  ", "is blank"), ("j-9d215", "looks like a job id"), ("j-x", "")]
)
def test_a_name_that_misleads_is_refused(shim, name, told):
    if not told:
        plan(launch(request=Request(name=name)), os.environ, uid=0)
        return
    with pytest.raises(UsageError, match=told):
        plan(launch(request=Request(name=name)), os.environ, uid=0)


@pytest.mark.parametrize(("require", "answer_s"), [(False, 1), (True, 20)])
def test_a_busy_daemon_is_waited_for_longer_where_nothing_runs_without_it(
    shim, monkeypatch, require, answer_s
):
    waits_s = []

    def register(*_, timeout_s, **_more):
        waits_s.append(timeout_s)
        return Registered(job_id=7)

    monkeypatch.setattr(_launch._attach, "register", register)
    monkeypatch.setattr(_launch, "execute", lambda *_: None)

    _launch.run(launch(require=require), {}, uid=0)

    assert waits_s == [answer_s]


def test_exit_codes_are_those_of_env():
    codes = (_launch.EXIT_FAILED, _launch.EXIT_NOT_EXECUTABLE, _launch.EXIT_NOT_FOUND)

    assert codes == (125, 126, 127)


def test_another_users_daemon_in_tmp_is_not_to_be_started_but_left_alone(shim, monkeypatch, capsys):
    why = "/tmp/lab/attach.sock: the daemon belongs to uid 1001"

    def register(*_args, **_options):
        raise UntrustedError(why)

    monkeypatch.setattr(_launch._attach, "register", register)
    decided = plan(launch(), os.environ, uid=0)

    assert _launch._register(launch(), decided) == {"TANDEM_DISABLE": "1"}
    assert capsys.readouterr().err == f"tandem: warning: {why}; running unshared\n"
    with pytest.raises(LaunchError) as refused:
        _launch._register(launch(require=True), decided)
    assert str(refused.value) == why

    place = SimpleNamespace(attach=Path("/tmp/lab/attach.sock"))
    (found,) = _doctor.check_identity(SimpleNamespace(place=place))
    assert (found.level, found.text) == (_doctor.FAIL, why)


def test_pytorch_is_asked_to_return_memory_only_when_told_to(shim):
    environ = {"PATH": "/bin"}

    asked = plan(launch(return_memory=True), environ, uid=1).environ
    plain = plan(launch(), environ, uid=1).environ

    assert asked["PYTORCH_CUDA_ALLOC_CONF"] == "backend:cudaMallocAsync"
    assert "PYTORCH_CUDA_ALLOC_CONF" not in plain


@pytest.mark.parametrize("name", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
@pytest.mark.parametrize(
    ("value", "warns"),
    [("max_split_size_mb:64", True), ("max_split_size_mb:64,backend:cudaMallocAsync", False)],
)
def test_what_pytorch_was_told_stays(shim, capsys, name, value, warns):
    job = plan(launch(return_memory=True), {"PATH": "/bin", name: value}, uid=1).environ

    assert {key: job[key] for key in job if key.startswith("PYTORCH")} == {name: value}
    assert (f"{name} stays" in capsys.readouterr().err) is warns
