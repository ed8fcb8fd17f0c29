"""What the daemon's main thread accepts as a signal, and how it reacts."""

import errno
import signal
from pathlib import PosixPath
from types import SimpleNamespace

import pytest
import structlog

from tandem.errors import UsageError
from tandemd import taken_signal
from tandemd.__main__ import _reload, parse
from tandemd.config import config


@pytest.mark.parametrize(
    ("taken", "number"),
    [
        (None, None),
        (SimpleNamespace(si_signo=int(signal.SIGHUP)), signal.SIGHUP),
        # CPython may return anything here if SIGCONT ends a wait that had already timed out.
        (SimpleNamespace(si_signo=1107217392), None),
        (SimpleNamespace(si_signo=0), None),
    ],
)
def test_only_what_was_waited_for_is_a_signal(monkeypatch, taken, number):
    monkeypatch.setattr(signal, "sigtimedwait", lambda _signals, _timeout_s: taken)

    assert taken_signal(1.0) == number


class Refusing:
    """A daemon that fails to take over another configuration."""

    failed_reloads = 0

    def reconfigure(self, _config):
        raise RuntimeError("nobody thought of this")

    def note_failed_reload(self):
        self.failed_reloads += 1


def test_a_reload_that_fails_in_whatever_way_ends_nothing():
    options, daemon = parse(["--policy", "fair"]), Refusing()

    with structlog.testing.capture_logs() as logs:
        _reload(daemon, options)

    assert daemon.failed_reloads == 1

    assert [entry["log_level"] for entry in logs] == ["error"]
    assert "continuing with the old one" in logs[0]["event"]


def test_a_configuration_that_may_not_be_looked_at_is_not_taken_for_none(monkeypatch):
    class Forbidden(PosixPath):
        def stat(self, **_how):
            raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(config, "DEFAULT_FILE", Forbidden("/etc/tandem/config.toml"))

    daemon = Refusing()
    with structlog.testing.capture_logs() as logs:
        _reload(daemon, parse([]))

    assert daemon.failed_reloads == 1

    assert [entry["log_level"] for entry in logs] == ["warning"]
    assert logs[0]["reason"] == "/etc/tandem/config.toml: Permission denied"


def test_drop_ins_count_without_the_file_that_they_are_beside(monkeypatch, tmp_path):
    monkeypatch.setattr(config, "DEFAULT_FILE", tmp_path / "config.toml")
    assert config.files_of(None) == []
    drop_in = tmp_path / "config.d" / "50-team.toml"
    drop_in.parent.mkdir()
    drop_in.write_text('[scheduler]\npolicy = "fair"\n')

    assert config.files_of(None) == [drop_in]
    assert config.load(None).scheduler.policy == "fair"

    drop_in.write_text("version = 9\n")
    with pytest.raises(UsageError, match=r"50-team\.toml: version: "):
        config.load(None)


def test_drop_ins_that_may_not_be_looked_at_are_not_passed_over(monkeypatch, tmp_path):
    (tmp_path / "config.toml").write_text("")

    def refuse(directory):
        raise PermissionError(errno.EACCES, "Permission denied", str(directory))

    monkeypatch.setattr(config.os, "listdir", refuse)

    with pytest.raises(UsageError, match=r"config\.d: Permission denied"):
        config.load(tmp_path / "config.toml")
