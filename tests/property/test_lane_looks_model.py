"""Looking only at what is new decides as looking at every group of the lanes each time does.

Two schedulers hear the same from a world that obeys them; one of them assumes before each event
that anything may have changed. Also, no turn ends before an iteration has: a group that was given a
lane is not passed over.
"""

from dataclasses import replace
from random import Random

import pytest

from tandemd.core.events import (
    CloseGates,
    JobPaused,
    JobResumed,
    JobUpdated,
    MemoryAudited,
    OpenGates,
    ProcessAttached,
    ProcessExited,
    SetStepLimit,
    Ticked,
    UsageSampled,
)
from tandemd.core.lanes.lanes import ORDERS
from tandemd.core.model import JobSpec, Options, Usage, WaitReason
from tandemd.core.scheduler import Scheduler

MIB = 1 << 20
MS = 1_000_000
LOOKS = 700


class World:
    """Jobs that work behind open gates, end iterations, and stop where they are told to."""

    def __init__(self, dice, options):
        self.dice = dice
        self.cores = [Scheduler(options), Scheduler(options)]
        for core in self.cores:
            core.memory.line.capacity_bytes = {0: 1024 * MIB}
        self.now_ns = 0
        self.usages: dict[int, Usage] = {}
        self.open: set[int] = set()
        self.limits: dict[int, int] = {}
        self.actions = []
        self.jobs = 0
        self.turns = {}  # of running groups: their marks by process when the turn began
        self.turns_ended = 0

    def tell(self, event):
        sparing, thorough = self.cores
        thorough.lanes.note_memory()
        actions = sparing.handle(event)
        assert actions == thorough.handle(event)
        assert sparing.lanes.wake_at_ns == thorough.lanes.wake_at_ns
        self.actions += actions
        for action in actions:
            if isinstance(action, OpenGates):
                self.open |= set(action.process_ids)
            elif isinstance(action, CloseGates):
                self.open -= set(action.process_ids)
            elif isinstance(action, SetStepLimit):
                self.limits[action.process_id] = action.steps
        self.follow_turns()

    def follow_turns(self):
        core, before, self.turns = self.cores[0], self.turns, {}
        for key, group in core.groups.items():
            standing = core.lanes.of(group)
            marks = {number: one.usage.steps for number, one in group.processes.items()}
            if standing and standing.lanes.is_running(key):
                self.turns[key] = before.get(key, marks)
            elif standing and marks.keys() == before.get(key, {}).keys():
                self.turns_ended += 1
                assert any(marks[number] > before[key][number] for number in marks)

    def spec(self):
        dice = self.dice
        if dice.random() < 0.4:
            return JobSpec(memory_bytes=dice.choice((100, 300, 900)) * MIB)
        sizes = dice.choice((0, 50, 150)) * MIB, dice.choice((100, 300, 600)) * MIB
        return JobSpec(persistent_bytes=sizes[0], ephemeral_bytes=sizes[1])

    def come(self):
        process_id = self.jobs
        # Now and then it is another process of the previous job.
        self.jobs += 1
        job_id = process_id - (self.dice.random() < 0.2)
        self.usages[process_id] = Usage(process_id=process_id)
        self.open.add(process_id)
        gone = job_id not in self.cores[0].jobs
        spec = self.spec() if gone else self.cores[0].jobs[job_id].spec
        who = {"process_id": process_id, "job_id": job_id, "uid": 0, "gpu": 0}
        self.tell(ProcessAttached(now_ns=self.now_ns, spec=spec, **who))

    def happen(self):
        """A rare event other than a sample."""
        dice, now_ns = self.dice, self.now_ns
        if not self.usages or dice.random() < 0.02:
            self.come()
            return
        process_id = dice.choice(list(self.usages))
        job_id = self.cores[0].processes[process_id].job_id
        match dice.randrange(200):
            case 0 | 1 | 2 | 3 | 4:
                del self.usages[process_id]
                self.tell(ProcessExited(now_ns=now_ns, process_id=process_id))
            case 5:
                self.tell(JobUpdated(now_ns=now_ns, job_id=job_id, spec=self.spec()))
            case 6:
                self.tell(JobPaused(now_ns=now_ns, job_id=job_id))
            case 7 | 8 | 9:
                self.tell(JobResumed(now_ns=now_ns, job_id=job_id))
            case 10:
                held = ((process_id, (dice.randrange(900) * MIB,)),)
                self.tell(MemoryAudited(now_ns=now_ns, held_bytes=held))

    def look(self):
        self.now_ns += self.dice.choice((1, 1, 1, 1, 40, 300)) * MS
        news = [self.after(usage) for usage in self.usages.values() if self.dice.random() < 0.5]
        news = [usage for usage in news if usage != self.usages[usage.process_id]]
        self.usages |= {usage.process_id: usage for usage in news}
        event = UsageSampled(now_ns=self.now_ns, samples=tuple(news))
        self.tell(event if news else Ticked(now_ns=self.now_ns))

    def after(self, usage):
        dice, limit = self.dice, self.limits.get(usage.process_id, 0)
        stands = 0 < limit <= usage.stopped
        if usage.process_id not in self.open or stands:
            gate = {"waiting_threads": 1, "wait_reason": WaitReason.GATE}
            return replace(usage, busy=usage.busy and dice.random() < 0.3, **gate)
        held_bytes = dice.choice((usage.device_bytes, dice.randrange(150) * MIB))
        peak_bytes = max(usage.peak_bytes, held_bytes)
        usage = replace(
            usage,
            busy=dice.random() < 0.8,
            waiting_threads=0,
            wait_reason=WaitReason.NONE,
            exclusive_ns=usage.exclusive_ns + MS // 2,
            device_bytes=held_bytes,
            peak_bytes=peak_bytes,
            iteration_peak_bytes=peak_bytes,
        )
        if dice.random() > 0.3:
            return usage
        if usage.process_id % 8 == 0:  # marks no iterations
            return replace(usage, iterations=usage.iterations + 1)
        steps = usage.steps + 1
        stopped = steps if 0 < limit <= steps else usage.stopped
        return replace(
            usage, steps=steps, iterations=steps, stopped=stopped, iteration_end_bytes=held_bytes
        )


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", range(3))
def test_a_look_at_what_is_news_decides_as_one_at_all(order, seed):
    options = Options(policy="lanes", lane_order=order, drain_ns=20 * MS)
    world = World(Random(seed), options)
    for _ in range(5):
        world.come()

    for _ in range(LOOKS):
        world.happen()
        world.look()

    stops = [action for action in world.actions if isinstance(action, SetStepLimit)]
    assert len(stops) > LOOKS // 50  # lanes were passed on
    assert world.turns_ended > LOOKS // 100
