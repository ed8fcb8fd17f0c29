"""Framework programs as processes: which can run here, and what came of them."""

import os
import sys

import pytest
from bench.gpu.harness import sources

MARKED = "import sys; print('managed: True', file=sys.stderr); print('digest 1f2e')"
FAILS = "import sys; print('first', file=sys.stderr); sys.exit('no such device')"
HANGS = """
import faulthandler, os, time
from bench.gpu.programs import WHERE_ARE_YOU
faulthandler.register(WHERE_ARE_YOU)
def stuck():
    time.sleep(600)
stuck()
"""


def ran(code, log, *, deadline_s=60):
    command = [sys.executable, "-c", code]
    return sources.run(command, os.environ, log=log, deadline_s=deadline_s)


def test_a_program_comes_to_a_digest(tmp_path):
    run = ran(MARKED, tmp_path / "log")

    assert (run.error, run.digest, run.is_managed) == ("", "1f2e", True)
    assert not ran("print('1f2e')", tmp_path / "log").is_managed


def test_one_that_fails_says_how_and_leaves_its_words(tmp_path):
    run = ran(FAILS, tmp_path / "log")

    assert (run.error, run.digest) == ("it ended with 1: no such device", "")
    assert sources.last_lines(tmp_path / "log") == ["first", "no such device"]
    assert sources.last_lines(tmp_path / "log", 1) == ["no such device"]


@pytest.mark.parametrize(
    ("code", "error"),
    [("", "it said nothing"), ("import os; os._exit(3)", "it ended with 3: it wrote nothing")],
)
def test_one_without_words_is_told_too(code, error, tmp_path):
    assert ran(code, tmp_path / "log").error == error


@pytest.mark.slow
def test_one_that_hangs_leaves_where(tmp_path):
    run = ran(HANGS, tmp_path / "log", deadline_s=4)

    assert run.error == "it was not done after 4 s"
    assert "in stuck" in "".join(sources.last_lines(tmp_path / "log"))


def test_names_of_packages_that_are_nowhere_are_found_out():
    assert sources.has_package("json.decoder")
    assert not sources.has_package("json.nowhere")
    assert not sources.has_package("nowhere.at_all")
