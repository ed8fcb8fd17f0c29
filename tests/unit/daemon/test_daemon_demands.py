"""The daemon tells the poller how many SMs processes count for, and this shapes what they pay."""

import mmap
import struct
from dataclasses import replace

import pytest

from tandem import _native
from tandemd.core.events import ProcessAttached, ProcessExited, ScalingTold, UsageSampled
from tandemd.core.model import JobSpec, Options, SmSet, Split
from tandemd.core.scheduler import Scheduler
from tandemd.core.space.scaling import Curve
from tandemd.core.space.sets import Span
from tandemd.observers.demands import TURNS, Demands
from tandemd.observers.usages import usage_of

SMS, MS = 128, 1_000_000
SLOTS, STATE_BYTES = 4096, 6 * 4096 + 17 * 65536
HELD_SMS = {1: 120.0, 2: 8.0}  # by process


class Told:
    """Stands for `_native.Poller` and records what it is told."""

    def __init__(self):
        self.calls, self.gone = [], set()

    def weigh(self, *, process_id, sms, most_sms):
        if process_id in self.gone:
            raise KeyError(process_id)
        self.calls.append((process_id, sms, most_sms))


def attach(core, process_id):
    spec = JobSpec(name=f"job {process_id}")
    core.handle(
        ProcessAttached(
            now_ns=process_id, process_id=process_id, job_id=process_id, uid=0, gpu=0, spec=spec
        )
    )


def record(core, process_id):
    curve = Curve(
        sm_counts=(SMS,), iteration_ns=(MS,), recorded_sms=SMS, held_sms=HELD_SMS[process_id]
    )
    core.handle(ScalingTold(now_ns=10, process_id=process_id, curve=curve, doubt=""))


@pytest.fixture
def core():
    options = Options(policy="fair", mps_gpus=frozenset({0}), sm_counts={0: SMS})
    made = Scheduler(options)
    for process_id in HELD_SMS:
        attach(made, process_id)
    return made


def test_the_poller_is_told_of_what_is_new_alone(core):
    poller = Told()
    demands = Demands(poller)

    demands.look(core)
    demands.look(core)
    record(core, 2)
    demands.look(core)

    assert poller.calls == [(1, SMS, SMS), (2, SMS, SMS), (2, 8, SMS)]


def test_of_a_set_the_poller_is_told_when_the_process_is_on_it(core):
    splits = {0: Split(groups=16, group_sms=8)}
    core, poller = Scheduler(replace(core.options, splits=splits)), Told()
    attach(core, 1)
    process, demands = core.processes[1], Demands(poller)
    demands.look(core)

    core.jobs[1].set, core.jobs[1].groups_wanted = Span(4, 2), 2
    process.usage = replace(
        process.usage, in_set=SmSet(first=4, count=2, group_sms=8), following_streams=1
    )
    demands.look(core)

    assert poller.calls[1:] == [(1, 16, 16)]


def test_of_what_nobody_recorded_the_poller_is_told_ten_looks_later_at_last(core):
    """For example an MPS percentage that was found out, or a set that changed."""
    poller = Told()
    demands = Demands(poller)
    demands.look(core)

    core.processes[1].mps_percent = 50.0
    for _ in range(TURNS):
        demands.look(core)

    assert poller.calls[2:] == [(1, SMS // 2, SMS)]


def test_nothing_counts_any_more_once_contexts_take_turns(core):
    poller = Told()
    demands = Demands(poller)
    demands.look(core)

    core.change_options(replace(core.options, mps_gpus=frozenset()), now_ns=20)
    demands.look(core)
    demands.look(core)

    assert poller.calls[2:] == [(1, 0, 0), (2, 0, 0)]


def test_who_has_left_is_forgotten_and_who_leaves_meanwhile_is_no_error(core):
    poller = Told()
    demands = Demands(poller)
    demands.look(core)
    core.handle(ProcessExited(now_ns=20, process_id=1))
    poller.gone.add(2)
    record(core, 2)

    demands.look(core)
    attach(core, 1)
    demands.look(core)

    assert poller.calls[2:] == [(1, SMS, SMS)]


def test_in_mode_time_nothing_is_told():
    core, poller = Scheduler(Options(sm_counts={0: SMS})), Told()
    attach(core, 1)

    Demands(poller).look(core)

    assert poller.calls == []


class Pages:
    """A process as the poller sees it, with work on the GPU that never ends."""

    def __init__(self, process_id):
        self.process = _native.Process(process_id=process_id, job_id=process_id)
        self._state = mmap.mmap(self.process.fds[1], STATE_BYTES)
        struct.pack_into("<I", self._state, SLOTS + 28, 1)
        struct.pack_into("<Q", self._state, SLOTS, 1)

    def close(self):
        self._state.close()
        self.process.close()


@pytest.fixture
def poller():
    made = _native.Poller()
    pages = [Pages(process_id) for process_id in HELD_SMS]
    for number, each in enumerate(pages):
        made.add(each.process, group=number)
    yield made
    for each in pages:
        each.close()


@pytest.mark.parametrize(("is_told", "first"), [(True, 2), (False, 1)])
def test_who_fills_little_of_the_gpu_pays_little_and_goes_before_the_other(
    core, poller, is_told, first
):
    """Both were on the GPU; if the poller is not told, both pay alike and the older goes first."""
    for process_id in HELD_SMS:
        record(core, process_id)
    if is_told:
        Demands(poller).look(core)

    poller.poll(now_ns=MS)
    poller.poll(now_ns=17 * MS)
    samples = tuple(map(usage_of, poller.snapshots()))
    core.handle(UsageSampled(now_ns=17 * MS, samples=samples))

    order = sorted(core.groups.values(), key=lambda group: (group.virtual_ns, group.arrival))
    assert [*order[0].processes] == [first]
    assert {group.served_ns for group in order} == {8 * MS}
    charged_ns = {p: core.jobs[p].gpu_ns for p in HELD_SMS}
    assert charged_ns == ({1: 15 * MS, 2: MS} if is_told else {1: 8 * MS, 2: 8 * MS})
