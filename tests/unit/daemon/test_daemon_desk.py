"""What the desk says about jobs, and to whom."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from tandem import _native
from tandemd.config.limits import Limits
from tandemd.core.events import ProcessAttached
from tandemd.core.model import JobClass, JobSpec, Options
from tandemd.core.planner.planning import UNSEEN
from tandemd.core.scheduler import Scheduler
from tandemd.desk import Desk
from tandemd.edges.clock import MonotonicClock
from tandemd.edges.gpus import Gpu
from tandemd.identities import Identities
from tandemd.loop import Loop


def desk_of(options, specs, *, privacy="open"):
    """A desk for jobs 1, 2, .. on one GPU, given each one's uid and spec."""
    loop = Loop(
        scheduler=Scheduler(options),
        clock=MonotonicClock(),
        poller=_native.Poller(),
        channels=SimpleNamespace(perform=lambda _action: None),
    )
    for number, (uid, spec) in enumerate(specs, 1):
        loop.handle(
            ProcessAttached(now_ns=1, process_id=number, job_id=number, uid=uid, gpu=0, spec=spec)
        )
    gpus = [Gpu(index=0, uuid=bytes(16))]
    return Desk(
        loop=loop,
        sessions=SimpleNamespace(commands={}, info={}),
        inventory=SimpleNamespace(refresh=lambda: None, gpus=lambda: gpus),
        limits=Limits(identities=Identities()),
        privacy=privacy,
        runtime_dir=Path("/nowhere"),
    )


def asked(desk, question, *arguments, **more):
    """Return the desk's answer, which is made on the loop's thread."""
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(question, *arguments, **more)
        while not answer.done():
            desk._loop._round(notable=True)
    return answer.result()


@pytest.mark.parametrize(("min_share", "owed"), [(0.0, 0.0), (0.1, 0.03)])
def test_beside_a_job_that_takes_everything_no_more_is_promised_than_min_share_leaves(
    min_share, owed
):
    specs = [(0, JobSpec(job_class=JobClass.LATENCY)), (0, JobSpec(sm_percent=30))]
    desk = desk_of(Options(policy="priority", min_share=min_share), specs)
    desk._loop.recent = SimpleNamespace(
        is_due=lambda _now_ns: False, share=lambda key: float(key == ("job", 1))
    )

    views = asked(desk, desk.jobs, 0, finished=False)

    assert [view.owed for view in views] == pytest.approx([0, owed])


def test_requests_are_told_of_who_has_them_and_of_who_had_them():
    specs = [(0, JobSpec(job_class=JobClass.LATENCY)), (0, JobSpec()), (0, JobSpec())]
    desk = desk_of(Options(), specs)
    desk._loop.scheduler.jobs[2].served.add([3, 5, 7], (), 1, slo_ns=4)

    views = asked(desk, desk.jobs, 0, finished=False)

    assert [view.served and view.served.count for view in views] == [0, 3, None]
    assert [view.missed for view in views] == [0, 2, 0]


@pytest.mark.parametrize(("uid", "told"), [(0, False), (1001, True)])
def test_plans_for_who_may_not_see_all_jobs_say_that_they_leave_some_out(uid, told):
    specs = [(1000, JobSpec()), (1001, JobSpec())]
    desk = desk_of(Options(sm_counts={0: 132}), specs, privacy="own-only")

    (view,) = asked(desk, desk.plans, uid)

    assert (UNSEEN in view.outlook.doubts) is told
    assert len(view.outlook.scene.workers) == 2 - told


@pytest.mark.parametrize(
    ("count", "told"),
    [(0, None), (1, "by 1 process that"), (2, "by 2 processes that"), (None, None)],
)
def test_who_computes_without_tandem_beside_a_job_is_told_of(count, told):
    desk = desk_of(Options(), [(0, JobSpec())])
    desk._loop.strangers = SimpleNamespace(on=lambda gpu: count if gpu == 0 else None)

    lines = asked(desk, desk.explanation, 0, "j-1").lines

    found = [line for line in lines if "is also used without Tandem" in line]
    assert len(found) == (told is not None)
    assert not found or told in found[0]
