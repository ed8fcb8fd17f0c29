import os
import signal
import sys

import pytest

from tandem.demo.process import Worker, WorkerError


def worker(tmp_path, code):
    return Worker("test", [sys.executable, "-c", code], env=os.environ, log=tmp_path / "log")


def test_a_worker_speaks_json_lines_between_other_output(tmp_path):
    child = worker(
        tmp_path, "print('hello'); print('3'); print('{\"event\": \"ready\", \"n\": 4}')"
    )

    assert child.wait_for("ready", deadline_s=30)["n"] == 4
    assert child.wait(deadline_s=30) == 0
    child.close()


def test_a_worker_begins_when_told(tmp_path):
    code = 'import sys; print(\'{"event": "began", "line": "%s"}\' % sys.stdin.readline().strip())'
    child = worker(tmp_path, code)

    child.go()

    assert child.wait_for("began", deadline_s=30)["line"] == "go"
    child.close()


def test_progress_can_be_awaited_up_to_a_count(tmp_path):
    code = 'for i in range(5): print(\'{"event": "progress", "done": %d}\' % i)'
    child = worker(tmp_path, code)

    assert child.wait_for("progress", deadline_s=30, done=3)["done"] == 3
    child.close()


def test_a_worker_that_ends_early_is_an_error_with_its_last_words(tmp_path):
    child = worker(tmp_path, "import sys; sys.exit('no such device')")

    with pytest.raises(
        WorkerError, match=r"(?s)the test process ended with code 1.*no such device"
    ):
        child.wait_for("ready", deadline_s=30)
    child.close()


def test_closing_ends_a_worker_that_ignores_signals(tmp_path):
    code = (
        'import signal; signal.signal(15, signal.SIG_IGN); print(\'{"event": "up"}\', flush=True)'
    )
    child = worker(tmp_path, code + "; signal.pause()")
    child.wait_for("up", deadline_s=30)

    child.close()

    assert child.wait(deadline_s=5) == -signal.SIGKILL
