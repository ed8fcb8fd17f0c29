from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

from tandem import _native
from tandemd.core.events import FindPlan, PlanFound, ProcessAttached, ProcessExited
from tandemd.core.explain import explain
from tandemd.core.model import JobSpec
from tandemd.core.scheduler import Scheduler
from tandemd.edges.clock import MonotonicClock
from tandemd.loop import Loop


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


def test_something_posted_that_fails_stops_nobody_else():
    done = []
    loop = Loop(
        scheduler=Scheduler(), clock=MonotonicClock(), poller=_native.Poller(), channels=None
    )
    loop.post(lambda: 1 / 0)
    loop.post(lambda: done.append(True))

    loop._round(notable=False)

    assert done == [True]


def test_a_search_for_a_plan_that_fails_is_told_once_and_the_next_question_is_asked(monkeypatch):
    told, failures = [], []
    clock = SimpleNamespace(is_virtual=True, now_ns=lambda: 1)  # so that a search is made at once
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
