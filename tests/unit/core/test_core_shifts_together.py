"""Trainers that do as they are told all keep ending iterations, wherever one is stopped."""

import random

import pytest
from talk import MS, Talk

from tandemd.core.curves.curves import Curve
from tandemd.core.events import CurveRecorded
from tandemd.core.model import MemoryWait, Options, WaitReason

TENT = (10, 22, 34, 46, 58, 70, 58, 46, 34, 22)  # held, by milliseconds of work done
AT_WORK = {"busy": True, "waiting_threads": 0, "wait_reason": WaitReason.NONE, "memory_wait": None}
HELD = AT_WORK | {"busy": False, "waiting_threads": 1, "wait_reason": WaitReason.GATE}


class Trainer:
    """Marks nothing; the daemon finds an iteration's end where `shape` begins."""

    def __init__(self, talk, number, shape):
        self.talk, self.number = talk, number
        self.shape = shape
        self.done_ms = self.shape.index(min(shape))
        self.ends = 1
        self.taken = 0  # of the memory for the next millisecond of work
        starts_ns = tuple(ms * MS for ms in range(len(self.shape) + 1))
        curve = Curve(starts_ns, (*self.shape, self.shape[0]), starts_ns[-1])
        talk.attach(number)
        self.tell(iterations=1, peak_bytes=max(shape))
        talk.say(CurveRecorded(now_ns=talk.now_ns, process_id=number, curve=curve))

    @property
    def held(self):
        return self.shape[self.done_ms % len(self.shape)] + self.taken

    def tell(self, **figures):
        work_ns = self.done_ms * MS
        figures |= {"work_ns": work_ns, "exclusive_ns": work_ns, "device_bytes": self.held}
        self.talk.sample(self.number, **figures)

    def goes_on(self):
        """Does a millisecond of work if it is allowed to and gets the memory."""
        process = self.talk.core.processes[self.number]
        more = self.shape[(self.done_ms + 1) % len(self.shape)] - self.held
        is_granted = self.held + more <= process.lease_bytes
        if not self.talk.is_open(self.number):
            if process.usage.memory_wait is None:
                self.talk.waits(self.number)
            elif is_granted:  # even if its gate is closed
                self.taken = more
                self.tell(**HELD)
            return
        if more > 0 and not is_granted:
            wait = MemoryWait(
                ticket=1, size_bytes=more, is_quota=True, is_alone=True, tried_round=0
            )
            self.tell(**AT_WORK | {"busy": False, "memory_wait": wait})
            return
        self.done_ms, self.taken = self.done_ms + 1, 0
        found = {}
        if self.done_ms % len(self.shape) == 0:
            self.ends += 1
            found = {"iterations": self.ends, "step_work_ns": self.done_ms * MS}
        self.tell(**AT_WORK | found)


def ends_of(shapes, capacity):
    """Return how many iterations each has ended after 400 ms."""
    talk = Talk(Options(policy="curves", mps_gpus=frozenset({0})))
    talk.core.memory.line.capacity_bytes = {0: capacity}
    trainers = [Trainer(talk, number, shape) for number, shape in enumerate(shapes, start=1)]
    for _ in range(400):
        talk.tick(after_ms=1)
        for trainer in trainers:
            trainer.goes_on()
        assert sum(trainer.held for trainer in trainers) <= capacity
    return [trainer.ends for trainer in trainers]


@pytest.mark.parametrize(
    ("capacity", "ends_ms"),
    [
        (100, (0, 3)),
        (100, (5, 0)),  # the first is stopped at its peak
        (100, (5, 4)),
        (100, (8, 4)),
        (100, (3, 5)),  # the first is stopped on its way up
        (100, (3, 6)),
        (130, (0, 5, 8)),
        (130, (6, 0, 3)),
    ],
)
def test_nobody_has_to_wait_for_ever_for_one_that_is_stopped_where_it_holds_much(capacity, ends_ms):
    shapes = [(*TENT[end_ms:], *TENT[:end_ms]) for end_ms in ends_ms]

    ends = ends_of(shapes, capacity)

    assert min(ends) > 5
    assert min(ends) > max(ends) / 3


def random_scene(seed, trainers):
    """Irregular loops that fit together at their minima, but not all at their peaks."""
    dice = random.Random(seed)
    shapes = []
    for _ in range(trainers):
        if dice.random() < 0.5:
            shapes.append(tuple(10 * dice.randint(1, 9) for _ in range(dice.randint(3, 10))))
            continue
        low, high = 10 * dice.randint(1, 3), 10 * dice.randint(5, 9)
        up, down = dice.randint(2, 6), dice.randint(2, 6)
        rise = [low + (high - low) * step // up for step in range(up)]
        tent = rise + [high - (high - low) * step // down for step in range(down)]
        end = dice.randrange(len(tent))
        shapes.append((*tent[end:], *tent[:end]))
    least = sum(map(min, shapes))
    needed = max(max(shape) + least - min(shape) for shape in shapes)
    return shapes, dice.randint(needed, max(needed, sum(map(max, shapes)) - 1))


@pytest.mark.parametrize("trainers", [2, 3, 4])
def test_whatever_they_hold_where_all_get_on(trainers):
    for seed in range(16):
        shapes, capacity = random_scene(seed, trainers)

        work = [len(s) * n for s, n in zip(shapes, ends_of(shapes, capacity), strict=True)]

        assert min(work) > max(work) / 6, (seed, shapes, capacity)


def test_who_begins_takes_nothing_that_one_needs_to_get_out_of_its_way():
    shapes = [(40, 70, 50, 30, 40, 90, 80, 60, 70, 40), (10, 70, 60, 70, 80)]

    assert min(ends_of(shapes, 110)) > 5
