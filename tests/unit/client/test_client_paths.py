"""Where a client looks for the daemon."""

import os
import socket
from pathlib import Path

import pytest

from tandem import _paths
from tandem._paths import attach_socket, fits_socket_address, runtime_dir

UID = os.geteuid()


@pytest.fixture
def system(tmp_path, monkeypatch):
    folder = tmp_path / "run-tandem"
    monkeypatch.setattr(_paths, "SYSTEM", folder)
    return folder


def listen_in(folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "attach.sock").touch()


def test_a_named_directory_is_obeyed_though_it_does_not_exist():
    environ = {"TANDEM_RUNTIME_DIR": "/x", "RUNTIME_DIRECTORY": "/y", "XDG_RUNTIME_DIR": "/z"}

    place = runtime_dir(environ, uid=UID)

    assert (str(place.path), place.origin) == ("/x", "TANDEM_RUNTIME_DIR")


def test_the_first_directory_of_systemd_is_ours():
    assert str(runtime_dir({"RUNTIME_DIRECTORY": "/run/a:/run/b"}, uid=UID).path) == "/run/a"


def test_a_daemon_of_the_user_is_preferred_to_that_of_the_machine(tmp_path, system):
    listen_in(system)
    listen_in(tmp_path / "xdg" / "tandem")

    place = runtime_dir({"XDG_RUNTIME_DIR": str(tmp_path / "xdg")}, uid=UID)

    assert place.path == tmp_path / "xdg" / "tandem"


def test_the_daemon_of_the_machine_is_found_by_a_user_without_one(tmp_path, system):
    listen_in(system)

    assert runtime_dir({"XDG_RUNTIME_DIR": str(tmp_path)}, uid=UID).path == system


def test_a_directory_that_may_not_be_entered_has_no_daemon(tmp_path, system, monkeypatch):
    """Root may enter every directory, so `stat` fails here as it does for a user."""
    system.mkdir()
    stat = os.stat

    def closed(path, *words, **options):
        if Path(path).parent == system:
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, *words, **options)

    monkeypatch.setattr(os, "stat", closed)

    assert runtime_dir({}, uid=4_000_000_000).path == system
    assert _paths.to_be_named({}, uid=4_000_000_000) == {}


def test_without_any_daemon_the_place_is_the_one_the_shim_will_look_in(tmp_path, system):
    nobody = 4_000_000_000  # a user without /tmp/tandem-<uid>

    assert runtime_dir({"XDG_RUNTIME_DIR": "/z"}, uid=nobody).path == Path("/z/tandem")
    assert runtime_dir({}, uid=nobody).path == Path(f"/tmp/tandem-{nobody}")
    system.mkdir()
    assert runtime_dir({}, uid=nobody).path == system


def test_a_directory_of_somebody_else_is_not_believed(tmp_path, system):
    listen_in(tmp_path / "xdg" / "tandem")
    listen_in(system)
    stranger = UID + 1

    if UID == 0:  # everybody trusts root's files, so give them to another user
        os.chown(tmp_path / "xdg" / "tandem", 12345, -1)
    place = runtime_dir({"XDG_RUNTIME_DIR": str(tmp_path / "xdg")}, uid=stranger)

    assert place.path == system


def test_the_sockets_of_a_directory():
    place = runtime_dir({"TANDEM_RUNTIME_DIR": "/x"}, uid=UID)

    assert [str(p) for p in (place.attach, place.login, place.rpc)] == [
        "/x/attach.sock",
        "/x/login.sock",
        "/x/tandemd.sock",
    ]
    assert str(attach_socket({"TANDEM_SOCKET": "/s"}, uid=UID)) == "/s"


def test_what_fits_an_address_is_what_the_kernel_takes(tmp_path):
    room = 107 - len(str(tmp_path)) - 1
    for length, fits in ((room, True), (room + 1, False)):
        path = tmp_path / ("x" * length)
        assert fits_socket_address(path) is fits
        with socket.socket(socket.AF_UNIX) as listener:
            if fits:
                listener.bind(str(path))
            else:
                with pytest.raises(OSError, match="too long"):
                    listener.bind(str(path))
