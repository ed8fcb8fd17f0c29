"""Who pays for GPU time, against a model in fractions: none is lost or paid for twice."""

import mmap
import struct
from dataclasses import dataclass, field
from fractions import Fraction

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tandem import _native

SLOTS, STATE_BYTES = 4096, 6 * 4096 + 17 * 65536
GPUS, GROUPS, MOST = 2, 3, 6  # processes at a time
which = st.integers(0, MOST - 1)
sms = st.integers(1, 132)


@dataclass
class Payer:
    """A process: what it reports, what it counts for, and what it should have paid."""

    process: _native.Process
    gpu: int
    group: int
    state: mmap.mmap = field(init=False)
    busy: bool = False
    was_busy: bool = False  # at the last look
    sms: int = 0
    most_sms: int = 0
    exclusive_ns: Fraction = Fraction(0)
    shared_ns: Fraction = Fraction(0)
    even_ns: Fraction = Fraction(0)
    looks: int = 0  # each rounds two parts

    def __post_init__(self):
        self.state = mmap.mmap(self.process.fds[1], STATE_BYTES)
        struct.pack_into("<I", self.state, SLOTS + 28, 1)

    def work(self, *, busy):
        self.busy = busy
        struct.pack_into("<Q", self.state, SLOTS, int(busy))

    def close(self):
        self.state.close()
        self.process.close()


class Charging(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.poller = _native.Poller()
        self.payers = {}
        self.now_ns = self.numbers = 0
        self.busy_ns = dict.fromkeys(range(GPUS), 0)  # for each GPU
        self.gone_ns = dict.fromkeys(range(GPUS), (0, 0))  # paid by leavers: in all, evenly

    def teardown(self):
        for payer in self.payers.values():
            payer.close()

    def one(self, nth):
        return list(self.payers.values())[nth % len(self.payers)]

    @initialize(counts=st.lists(st.tuples(sms, sms), min_size=4, max_size=4))
    def begin(self, counts):
        """Starts with three busy, weighted groups on one GPU, which chance alone rarely gives."""
        for nth, (own, most) in enumerate(counts):
            self.come(gpu=0, group=1 + nth % GROUPS)
            self.work(nth, busy=True)
            self.count_for(nth, own, most, is_known=True)

    @precondition(lambda self: len(self.payers) < MOST)
    @rule(gpu=st.integers(0, GPUS - 1), group=st.integers(1, GROUPS))
    def come(self, gpu, group):
        self.numbers += 1
        process = _native.Process(process_id=self.numbers, job_id=1)
        self.payers[self.numbers] = Payer(process, gpu, group)
        self.poller.add(process, group=group, gpu=gpu)

    @precondition(lambda self: self.payers)
    @rule(nth=which, busy=st.sampled_from([True, True, False]))
    def work(self, nth, busy):
        self.one(nth).work(busy=busy)

    @precondition(lambda self: self.payers)
    @rule(nth=which, group=st.integers(1, GROUPS))
    def change_group(self, nth, group):
        payer = self.one(nth)
        payer.group = group
        self.poller.regroup(process_id=payer.process.process_id, group=group)

    @precondition(lambda self: self.payers)
    @rule(nth=which, counts=sms, most=sms, is_known=st.sampled_from([True, True, True, False]))
    def count_for(self, nth, counts, most, is_known):
        payer = self.one(nth)
        payer.sms, payer.most_sms = (counts, most) if is_known else (0, 0)
        self.poller.weigh(
            process_id=payer.process.process_id, sms=payer.sms, most_sms=payer.most_sms
        )

    @precondition(lambda self: self.payers)
    @rule(nth=which)
    def go(self, nth):
        """Leaves between two looks; time since the last look is charged to nobody."""
        payer = self.one(nth)
        number = payer.process.process_id
        last = self.poller.remove(process_id=number)
        del self.payers[number]
        paid_ns, evenly_ns = self.gone_ns[payer.gpu]
        paid_ns += last.exclusive_ns + last.shared_ns
        self.gone_ns[payer.gpu] = (paid_ns, evenly_ns + last.exclusive_ns + last.even_ns)
        payer.close()

    @rule(after_ns=st.one_of(st.integers(1, 50), st.integers(1, 10**9)))
    def look(self, after_ns):
        self.now_ns += after_ns
        self.poller.poll(now_ns=self.now_ns)
        for gpu in range(GPUS):
            self.pay(gpu, after_ns)
        for payer in self.payers.values():
            payer.was_busy = payer.busy
        self.check()

    def pay(self, gpu, interval_ns):
        """Charges those who were busy when the interval began."""
        groups = {}
        for payer in self.payers.values():
            if payer.gpu == gpu and payer.was_busy:
                groups.setdefault(payer.group, []).append(payer)
        self.busy_ns[gpu] += interval_ns * bool(groups)
        members = [payer for each in groups.values() for payer in each]
        weights = dict.fromkeys(groups, 1)
        if all(payer.sms for payer in members):
            for group, those in groups.items():
                most_sms = max(payer.most_sms for payer in those)
                weights[group] = min(most_sms, sum(payer.sms for payer in those))
        for payer in members:
            count = len(groups[payer.group])
            part = Fraction(weights[payer.group], sum(weights.values()) * count)
            payer.looks += 1
            if len(groups) == 1:
                payer.exclusive_ns += interval_ns * part
            else:
                payer.shared_ns += interval_ns * part
                payer.even_ns += Fraction(interval_ns, len(groups) * count)

    def check(self):
        found = {snapshot.process_id: snapshot for snapshot in self.poller.snapshots()}
        paid_ns = {gpu: list(self.gone_ns[gpu]) for gpu in range(GPUS)}
        for number, payer in self.payers.items():
            seen = found[number]
            paid_ns[payer.gpu][0] += seen.exclusive_ns + seen.shared_ns
            paid_ns[payer.gpu][1] += seen.exclusive_ns + seen.even_ns
            for name in ("exclusive_ns", "shared_ns", "even_ns"):
                assert abs(getattr(seen, name) - getattr(payer, name)) <= 2 * payer.looks, name
        for gpu, busy_ns in self.busy_ns.items():
            assert paid_ns[gpu] == [busy_ns, busy_ns], f"gpu {gpu}"


TestCharging = Charging.TestCase
