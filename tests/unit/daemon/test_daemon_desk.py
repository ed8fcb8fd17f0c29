"""What the desk says of a job."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from tandem import _native
from tandemd.config.limits import Limits
from tandemd.core.events import ProcessAttached
from tandemd.core.model import JobClass, JobSpec, Options
from tandemd.core.scheduler import Scheduler
from tandemd.desk import Desk
from tandemd.edges.clock import MonotonicClock
from tandemd.identities import Identities
from tandemd.loop import Loop


@pytest.mark.parametrize(("min_share", "owed"), [(0.0, 0.0), (0.1, 0.03)])
def test_beside_a_job_that_takes_everything_no_more_is_promised_than_min_share_leaves(
    min_share, owed
):
    loop = Loop(
        scheduler=Scheduler(Options(policy="priority", min_share=min_share)),
        clock=MonotonicClock(),
        poller=_native.Poller(),
        channels=SimpleNamespace(perform=lambda _action: None),
    )
    specs = [JobSpec(job_class=JobClass.LATENCY), JobSpec(sm_percent=30)]
    for number, spec in enumerate(specs, 1):
        loop.handle(
            ProcessAttached(now_ns=1, process_id=number, job_id=number, uid=0, gpu=0, spec=spec)
        )
    loop.recent = SimpleNamespace(
        is_due=lambda _now_ns: False, share=lambda key: float(key == ("job", 1))
    )
    desk = Desk(
        loop=loop,
        sessions=SimpleNamespace(commands={}, info={}),
        inventory=SimpleNamespace(refresh=lambda: None),
        limits=Limits(identities=Identities()),
        privacy="open",
        runtime_dir=Path("/nowhere"),
    )

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(desk.jobs, 0, finished=False)
        while not answer.done():
            loop._round(notable=True)

    assert [view.owed for view in answer.result()] == pytest.approx([0, owed])
