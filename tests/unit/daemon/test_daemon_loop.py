import threading
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from tandem import _native
from tandemd.core.events import (
    AnnounceJob,
    CloseGates,
    FindPlan,
    PlanFound,
    ProcessAttached,
    ProcessExited,
    SetMemoryWait,
    Ticked,
)
from tandemd.core.explain.explain import explain
from tandemd.core.model import JobSpec
from tandemd.core.scheduler import Scheduler
from tandemd.edges.clock import MonotonicClock
from tandemd.failures import QUIET_NS, Failures
from tandemd.loop import POSTED_NS, VIRTUAL_ROUND_NS, Loop


def test_whoever_asks_right_after_a_job_left_sees_what_follows_from_it():
    channels = SimpleNamespace(perform=lambda action: None)
    loop = Loop(
        scheduler=Scheduler(), clock=MonotonicClock(), poller=_native.Poller(), channels=channels
    )
    for number in (1, 2):
        spec = JobSpec(name=f"job {number}")
        loop.handle(
            ProcessAttached(now_ns=1, process_id=number, job_id=number, uid=0, gpu=0, spec=spec)
        )
    loop.post(lambda: loop.note(ProcessExited(now_ns=2, process_id=1)))

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(
            loop.ask, lambda: explain(loop.scheduler, loop.scheduler.jobs[2], now_ns=3)
        )
        while not answer.done():
            loop._round(notable=False)

    assert "job 1" not in " ".join([answer.result().summary, *answer.result().lines])


class VirtualClock:
    """Advances when the loop waits; calls `at_wait` then, which may end the wait by `end_wait`."""

    is_virtual = True

    def __init__(self, at_wait=lambda: None):
        self.ns = 0
        self.waits_ns, self.looks, self.ends = [], [], 0
        self._at_wait = at_wait

    def now_ns(self):
        return self.ns

    def wait_until_ns(self, deadline_ns, *, looks=False, only_looked=False):
        self.waits_ns.append(deadline_ns - self.ns)
        self.looks.append(looks)
        ends = self.ends
        self._at_wait()
        if self.ends > ends:
            return False
        self.ns = deadline_ns
        return True

    def end_wait(self):
        self.ends += 1


def only_once(call):
    calls = iter((call,))
    return lambda: next(calls, lambda: None)()


def virtual_loop(clock):
    channels = SimpleNamespace(perform=lambda action: None, release_all=lambda: None)
    return Loop(scheduler=Scheduler(), clock=clock, poller=_native.Poller(), channels=channels)


def test_on_the_virtual_clock_rounds_are_rare_while_nothing_goes_on_and_a_timer_is_kept():
    clock = VirtualClock()
    loop = virtual_loop(clock)

    for _ in range(30):
        loop._wait_virtual()
    loop._wake_at_ns = clock.ns + 7 * VIRTUAL_ROUND_NS
    loop._wait_virtual()

    told = [ns / VIRTUAL_ROUND_NS for ns in clock.waits_ns]
    assert told[:16] == [1] * 16
    assert told[16:24] == [2.5, 4, 8, 16, 32, 64, 100, 100]  # 2.5: between two grid points
    assert told[30] == 7.5  # 7, and on to the next grid point
    # A long wait notices changes at once, and the loop has a round at the next grid point.
    assert clock.looks == [ns > VIRTUAL_ROUND_NS for ns in clock.waits_ns]


def test_whoever_posts_ends_the_virtual_wait_and_the_loop_itself_does_not():
    did = []
    loop = virtual_loop(clock := VirtualClock(lambda: loop.post(lambda: did.append("posted"))))
    for _ in range(30):
        loop.poller.poll(now_ns=1)  # so that the next wait would be long
    clock._at_wait = only_once(clock._at_wait)
    loop._wait_virtual()
    loop._round(notable=False)

    assert (clock.ns, clock.ends, did) == (VIRTUAL_ROUND_NS, 1, ["posted"])

    loop.post(lambda: did.append("by itself"))  # as the loop does in its own round
    clock._at_wait = lambda: None
    loop._wait_virtual()

    assert clock.ends == 1
    assert clock.waits_ns[-1] == VIRTUAL_ROUND_NS  # a short time passes before it


def test_nobody_waits_for_a_loop_that_has_ended():
    channels = SimpleNamespace(perform=lambda action: None, release_all=lambda: None)
    loop = Loop(
        scheduler=Scheduler(), clock=MonotonicClock(), poller=_native.Poller(), channels=channels
    )
    loop.stop()

    with ThreadPoolExecutor(1) as pool:
        early = pool.submit(loop.ask, lambda: "never")
        while not loop._posted:
            pass
        loop.run()

        with pytest.raises(TimeoutError):
            early.result()
    with pytest.raises(TimeoutError):
        loop.ask(lambda: "never")


class Strides:
    """A clock that advances by `stride_ns` at each look."""

    is_virtual = False

    def __init__(self, stride_ns):
        self._stride_ns = stride_ns
        self._now_ns = 0

    def now_ns(self):
        self._now_ns += self._stride_ns
        return self._now_ns


def test_what_decisions_take_is_counted_and_of_what_is_only_noted_with_its_conclusions():
    channels = SimpleNamespace(perform=lambda action: None)
    loop = Loop(scheduler=Scheduler(), clock=Strides(7), poller=_native.Poller(), channels=channels)

    loop.handle(Ticked(now_ns=1))
    assert (loop.decisions.counted().count, loop.decisions.counted().sum_ns) == (1, 7)
    for number in (1, 2):
        loop.note(
            ProcessAttached(
                now_ns=1, process_id=number, job_id=number, uid=0, gpu=0, spec=JobSpec()
            )
        )
    assert loop.decisions.counted().count == 1

    loop._settle(1)
    assert (loop.decisions.counted().count, loop.decisions.counted().sum_ns) == (2, 4 * 7)


def test_what_nobody_waits_for_any_more_is_not_done(monkeypatch):
    monkeypatch.setattr("tandemd.questions.ASK_TIMEOUT_S", 0)
    loop, done = quiet_loop(), []

    with pytest.raises(TimeoutError):
        loop.ask(lambda: done.append(True))
    loop._round(notable=False)

    assert done == []


def test_what_is_being_done_when_patience_ends_is_waited_for(monkeypatch):
    begun, patience_ended = threading.Event(), threading.Event()

    class Answer(Future):
        def cancel(self):
            patience_ended.set()
            return super().cancel()

    def question():
        begun.set()
        patience_ended.wait()
        return "done"

    def post(errand):
        pool.submit(errand)
        begun.wait()

    loop = quiet_loop()
    monkeypatch.setattr("tandemd.questions.ASK_TIMEOUT_S", 0)
    monkeypatch.setattr("tandemd.questions.Future", Answer)
    monkeypatch.setattr(loop, "post", post)
    with ThreadPoolExecutor(1) as pool:
        try:
            assert loop.ask(question) == "done"
        finally:
            patience_ended.set()


def test_something_posted_that_fails_stops_nobody_else():
    done = []
    clock = SimpleNamespace(is_virtual=False, now_ns=lambda: 1)  # logging takes no time
    loop = Loop(scheduler=Scheduler(), clock=clock, poller=_native.Poller(), channels=None)
    loop.post(lambda: 1 / 0)
    loop.post(lambda: done.append(True))

    loop._round(notable=False)

    assert done == [True]


def test_a_search_for_a_plan_that_fails_is_told_once_and_the_next_question_is_asked(monkeypatch):
    told, failures = [], []
    clock = SimpleNamespace(is_virtual=True, now_ns=lambda: 1)  # makes the search at once
    loop = Loop(scheduler=Scheduler(), clock=clock, poller=_native.Poller(), channels=None)

    def handle(event):
        if isinstance(event, PlanFound):
            failures.append(event.failure)

    monkeypatch.setattr(loop, "handle", handle)
    monkeypatch.setattr("tandemd.loop.log.exception", lambda text, **facts: told.append(text))
    for scene in (None, None, SimpleNamespace(workers={})):
        loop.perform(FindPlan(gpus=frozenset({0}), number=1, scene=scene))
        loop._round(notable=False)

    assert [failure.partition(":")[0] for failure in failures] == ["AttributeError"] * 3
    assert failures[0] == failures[1] != failures[2]
    assert len(told) == 2


class Naps:
    """A virtual clock whose waits end at these times; `waits` records what it was asked for."""

    is_virtual = True

    def __init__(self, *times_ns):
        self._times_ns = iter(times_ns)
        self._now_ns = 0
        self.waits = []

    def now_ns(self):
        return self._now_ns

    def wait_until_ns(self, deadline_ns, *, looks=False, only_looked=False):
        self.waits.append((deadline_ns, only_looked))
        self._now_ns = next(self._times_ns)
        self.meanwhile()
        return self._now_ns >= deadline_ns

    def end_wait(self):
        """Does nothing: the wait ends anyway."""


def two_rounds(clock, posts=None):
    """Return the times of two rounds."""
    loop = Loop(
        scheduler=Scheduler(), clock=clock, poller=_native.Poller(), channels=SimpleNamespace()
    )
    clock.meanwhile = (lambda: loop.post(posts)) if posts else lambda: None
    times_ns = []
    for _ in range(2):
        loop._round(notable=loop._wait_virtual())
        times_ns.append(loop.last_round_ns)
    return times_ns


def test_naps_of_real_time_that_brought_nothing_leave_no_trace_in_virtual_time():
    clock = Naps(300, 700, VIRTUAL_ROUND_NS, 2 * VIRTUAL_ROUND_NS)

    assert two_rounds(clock) == [VIRTUAL_ROUND_NS, 2 * VIRTUAL_ROUND_NS]
    assert clock.waits[:3] == [(VIRTUAL_ROUND_NS, True)] * 3


def test_what_is_posted_in_a_nap_of_real_time_is_done_at_once_and_may_be_seen():
    clock, done = Naps(300, VIRTUAL_ROUND_NS + 300), []

    assert two_rounds(clock, lambda: done.append(True)) == [300, VIRTUAL_ROUND_NS + 300]
    assert done == [True, True]
    assert clock.waits == [(VIRTUAL_ROUND_NS, True), (VIRTUAL_ROUND_NS, False)]


def quiet_loop(perform=lambda action: None):
    return Loop(
        scheduler=Scheduler(),
        clock=MonotonicClock(),
        poller=_native.Poller(),
        channels=SimpleNamespace(perform=perform),
    )


def fail(*_, **__):
    raise OverflowError("int too big to convert")


@pytest.mark.parametrize(
    "part", ["structures", "bounds", "curves", "scalings", "recent", "histories", "watchdog"]
)
def test_a_look_that_fails_is_told_and_keeps_nobody_from_the_others(monkeypatch, part):
    loop, looked = quiet_loop(), []
    others = {"structures", "curves", "histories", "watchdog"} - {part}
    for name in {part, *others}:
        look = fail if name == part else lambda *_, name=name: looked.append(name) or ()
        monkeypatch.setattr(loop, name, SimpleNamespace(look=look, is_due=lambda _: True))

    with capture_logs() as logs:
        loop._round(notable=True)
        loop._round(notable=True)

    assert set(looked) == others
    assert [line["log_level"] for line in logs] == ["error"]
    assert isinstance(logs[0]["exc_info"], OverflowError)


def test_an_action_that_fails_does_not_take_those_behind_it_along():
    told = []

    def perform(action):
        if 2 in getattr(action, "process_ids", [getattr(action, "process_id", 0)]):
            raise KeyError(2)
        told.append(action)

    loop = quiet_loop(perform)
    actions = [
        SetMemoryWait(process_id=2, wait_ns=1),
        CloseGates(process_ids=(1, 2, 3)),
        SetMemoryWait(process_id=3, wait_ns=1),
    ]
    with capture_logs() as logs:
        for action in actions:
            loop.perform(action)

    assert told == [
        CloseGates(process_ids=(1,)),
        CloseGates(process_ids=(3,)),
        SetMemoryWait(process_id=3, wait_ns=1),
    ]
    assert [line["what"] for line in logs] == ["SetMemoryWait", "CloseGates"]


def test_a_watcher_that_fails_keeps_the_others_informed():
    loop, heard = quiet_loop(), []
    loop.watchers = {fail, heard.append}

    loop.perform(AnnounceJob(job_id=1, kind="attached"))

    assert [change.job_id for change in heard] == [1]


def test_of_each_kind_of_failure_one_a_minute_is_told():
    failures = Failures()

    with capture_logs() as logs:
        for at_ns in (0, 1, QUIET_NS - 1, QUIET_NS, QUIET_NS + 1):
            failures.tell("histories", OverflowError(), at_ns)
        failures.tell("histories", KeyError(), 2)
        failures.tell("curves", OverflowError(), 2)

    assert [(line["what"], line.get("before")) for line in logs] == [
        ("histories", None),
        ("histories", 2),
        ("histories", None),
        ("curves", None),
    ]


def test_who_posts_without_end_does_not_keep_the_loop_from_its_rounds():
    now_ns, done = [0], []
    clock = SimpleNamespace(is_virtual=False, now_ns=lambda: now_ns[0])
    loop = Loop(scheduler=Scheduler(), clock=clock, poller=_native.Poller(), channels=None)

    def work():
        now_ns[0] += POSTED_NS // 2
        done.append(now_ns[0])

    for _ in range(5):
        loop.post(work)
    looks = [loop._round(notable=False) or (len(done), loop.last_round_ns) for _ in range(3)]

    assert looks == [(2, 0), (4, POSTED_NS), (5, 2 * POSTED_NS)]
