"""The process that forks daemons for other tests."""

import daemon_forks
import pytest


def test_a_server_that_has_died_says_so_in_its_own_words(monkeypatch, tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit('no such library')")
    monkeypatch.setattr(daemon_forks, "__file__", str(broken))
    server = daemon_forks.Server("")

    with pytest.raises(RuntimeError, match=r"ended with 1\nno such library"):
        server.ask({"arguments": [], "env": {}, "log": "/dev/null"})
