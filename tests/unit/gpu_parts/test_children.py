"""Processes that a part of `make gpu` starts."""

import os
import select
import sys
import time
from types import SimpleNamespace

import pytest
from bench.gpu.harness import children

from tandem.demo.process import WorkerError

SAYS = """
import json, sys
print(json.dumps({"event": "ready", "bytes": 3}), flush=True)
for line in sys.stdin:
    print(json.dumps({"event": "step", "line": line}), flush=True)
"""
PATIENCE_S = 60


def python(code):
    return [sys.executable, "-c", code]


def test_the_answer_is_the_last_line():
    said = children.ask(python("print('begun'); print('{\"a\": 1}')"), os.environ, deadline_s=60)

    assert said == {"a": 1}


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import sys; sys.exit('no such device')", "ended with 1\nno such device"),
        ("", "said nothing"),
        ("import time; time.sleep(600)", "was not done after 0.5 s"),
    ],
)
def test_a_program_without_an_answer_says_why(code, words):
    deadline_s = 0.5 if "sleep" in code else 60

    with pytest.raises(WorkerError, match=words):
        children.ask(python(code), os.environ, deadline_s=deadline_s)


def test_what_a_program_started_ends_with_it(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    # A shell starts well within its time limit; the process it leaves behind inherits its stdout.
    leave = ["sh", "-c", f"sleep 600 3> {pipe} &"]

    with pytest.raises(WorkerError, match="not done"):
        children.run(leave, os.environ, deadline_s=3)

    # Reading reports the end of the pipe once nobody has it open.
    assert select.select([reader], [], [], PATIENCE_S)[0]
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_programs_that_talk_have_a_log_each(tmp_path):
    bench = SimpleNamespace(folder=tmp_path)

    with (
        children.ready(bench, python(SAYS), os.environ, role="one") as (first, about),
        children.ready(bench, python(SAYS), os.environ, role="one"),
    ):
        assert about == {"bytes": 3}
        assert children.told(first, "step") == {"line": "go\n"}

    assert len(list((tmp_path / "logs").iterdir())) == 2


def test_one_that_is_not_needed_any_more_may_leave_by_itself(tmp_path):
    """Killing a client of MPS may take down its server, and with it other clients."""
    code = f"{SAYS}\nopen({str(tmp_path / 'left')!r}, 'w')"

    with children.ready(SimpleNamespace(folder=tmp_path), python(code), os.environ):
        pass

    assert (tmp_path / "left").exists()


def test_what_one_that_leaves_by_itself_has_started_ends_with_it(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    begin = f"import subprocess\nkept = open({str(pipe)!r}, 'w')\n"
    begin += "subprocess.Popen(['sleep', '600'], pass_fds=[kept.fileno()])\n"

    with children.ready(SimpleNamespace(folder=tmp_path), python(begin + SAYS), os.environ):
        pass

    assert select.select([reader], [], [], PATIENCE_S)[0]
    assert os.read(reader, 1) == b""
    os.close(reader)


@pytest.mark.parametrize(("left_s", "waited_s"), [(1000, 90.0), (40, 20.0), (4, 5.0)])
def test_what_a_program_says_next_is_waited_for_as_long_as_the_part_has_time(
    monkeypatch, left_s, waited_s
):
    asked = []
    worker = SimpleNamespace(wait_for=lambda event, deadline_s: asked.append(deadline_s) or {})
    progress = SimpleNamespace(end_s=lambda reserve_s: time.monotonic() + left_s)
    monkeypatch.setattr(children, "progress", progress)

    children.heard(worker, "ready")

    assert asked == [waited_s]
