"""What `tandem status` says that its caller may have, and how long it asks."""

import contextlib
from types import SimpleNamespace

import pytest

from tandem._results import Allowance
from tandem.cli import status as module
from tandem.cli.status import LOOK_S, WAIT_S, _said, _status_within
from tandem.errors import UnavailableError

GIB = 1 << 30
NO_LIMIT = Allowance(
    max_class="latency",
    max_class_key=None,
    max_memory_bytes=None,
    max_memory_percent=None,
    max_memory_key=None,
)


@pytest.mark.parametrize(
    ("size_bytes", "percent", "told"),
    [
        (None, None, "no limit of memory"),
        (40 * GIB, None, "40 GiB of each gpu's memory for all jobs (limits.user.ann.max_memory)"),
        (None, 50, "50% of each gpu's memory for all jobs (limits.user.ann.max_memory)"),
        (40 * GIB, 50, "40 GiB or, where that is more, 50% of each gpu's memory for all jobs ("),
    ],
)
def test_class_and_memory_are_said_with_the_keys_that_say_so(size_bytes, percent, told):
    allowance = Allowance(
        max_class="normal",
        max_class_key="limits.default.max_class",
        max_memory_bytes=size_bytes,
        max_memory_percent=percent,
        max_memory_key="limits.user.ann.max_memory" if size_bytes or percent else None,
    )

    assert _said(allowance).startswith(f"classes up to normal (limits.default.max_class), {told}")


def test_who_has_no_limit_hears_that():
    assert _said(NO_LIMIT) == "any class, no limit of memory"


class Starting:
    """A daemon that listens only after a while; time passes when somebody sleeps."""

    def __init__(self, monkeypatch, *, after_s):
        self.now_s, self._after_s = 0.0, after_s
        clock = SimpleNamespace(monotonic=lambda: self.now_s, sleep=self._sleep)
        monkeypatch.setattr(module, "time", clock)
        monkeypatch.setattr(module, "open_client", self._open)

    def _sleep(self, seconds):
        self.now_s += seconds

    def _open(self):
        if self.now_s < self._after_s:
            raise UnavailableError("no daemon answers")
        return contextlib.nullcontext(SimpleNamespace(status=lambda: "up"))


def test_it_waits_for_a_daemon_that_is_starting(monkeypatch):
    daemon = Starting(monkeypatch, after_s=1.6)

    assert _status_within(WAIT_S) == "up"
    assert 1.6 <= daemon.now_s <= 1.6 + LOOK_S


@pytest.mark.parametrize("seconds", [0.0, WAIT_S])
def test_it_waits_no_longer_than_it_was_told_to(monkeypatch, seconds):
    daemon = Starting(monkeypatch, after_s=1000)

    with pytest.raises(UnavailableError):
        _status_within(seconds)
    assert seconds <= daemon.now_s <= seconds + LOOK_S
