"""Forecasts of request times against a simulated queue: random requests, and one at a time.

A client's requests are all alike, or differ in what they need.

Forecasts take waits to be exponential, and do not model how often a client that sends one at a time
sends right after its last answer. They only have to be within half and twice of what is measured.
Where every client sends one at a time, the longest wait does not depend on chance, and they are
exact.
"""

import heapq
from dataclasses import dataclass
from random import Random

import pytest

from tandemd.core.planner.plans import Gpu, Part, Scene, Worker
from tandemd.core.tuner.latency import percentile_ns
from tandemd.core.tuner.sizes import ALIKE, sizes_of
from tandemd.core.turns.interference import Interference

MS, SPAN_S = 1_000_000, 400
QUIET = Interference(weights=(0, 0, 0, 0, 0, 0, 1))  # no job slows another down


@dataclass(frozen=True)
class Client:
    """Sends requests at `rate`; a serial client waits for each answer, then thinks."""

    ms: float  # of a request, or of the smallest one
    rate: float
    is_serial: bool = False
    times: tuple[float, ...] = (1,)  # multiples of `ms`, all equally frequent

    def needs_ns(self, chance):
        """Return what the next request takes."""
        return self.ms * MS * chance.choice(self.times)


def measured(clients):
    """Return what each request took and needed, in order of arrival."""
    chance, free_s = Random(1), 0.0
    took, needed = {name: [] for name in clients}, {name: [] for name in clients}
    coming = [(chance.expovariate(client.rate), name) for name, client in clients.items()]
    heapq.heapify(coming)
    while coming[0][0] < SPAN_S:
        at_s, name = heapq.heappop(coming)
        client = clients[name]
        needed[name].append(client.needs_ns(chance))
        free_s = max(at_s, free_s) + needed[name][-1] / 1e9
        took[name].append(int((free_s - at_s) * 1e9))
        again_s = (free_s if client.is_serial else at_s) + chance.expovariate(client.rate)
        heapq.heappush(coming, (again_s, name))
    return took, needed


def off(*clients, knows_sizes=True):
    """Return forecast / measured p99 of each client, all taking turns at their measured rates."""
    known = {str(number): client for number, client in enumerate(clients)}
    took, needed = measured(known)
    workers = {
        name: Worker(
            name=name,
            solo_ns=client.ms * MS,
            at=lambda _, ms=client.ms: ms * MS,
            rate=len(took[name]) / SPAN_S,
            is_serial=client.is_serial,
            sizes=sizes_of(needed[name], client.ms * MS) if knows_sizes else ALIKE,
        )
        for name, client in known.items()
    }
    foretold = Scene(workers, Gpu(groups=1, sms_of_group=8), QUIET).value((Part(1, tuple(known)),))
    return [foretold.forecasts[n].p99_ns / percentile_ns(took[n], 0.99) for n in known]


@pytest.mark.parametrize("ms", [4, 10])
@pytest.mark.parametrize("thinks_ms", [2, 20])
def test_one_at_a_time_among_such_waits_for_one_of_each_other_at_most(ms, thinks_ms):
    rate = 1000 / thinks_ms
    clients = [Client(10, rate, is_serial=True), Client(ms, rate, is_serial=True)]

    assert off(clients[0]) == [pytest.approx(1)]
    assert off(*clients) == pytest.approx([1, 1], abs=0.05)


@pytest.mark.parametrize("use", [0.1, 0.3, 0.5, 0.7])
@pytest.mark.parametrize(("serial_ms", "chance_ms"), [(10, 4), (4, 10), (4, 4)])
@pytest.mark.parametrize("thinks_ms", [2, 20])
def test_one_at_a_time_beside_requests_by_chance(use, serial_ms, chance_ms, thinks_ms):
    serial = Client(serial_ms, 1000 / thinks_ms, is_serial=True)

    found = off(serial, Client(chance_ms, 1000 * use / chance_ms))

    assert all(0.5 < each < 2 for each in found), found


@pytest.mark.parametrize("use", [0.2, 0.5, 0.8])
def test_requests_by_chance_alone(use):
    (found,) = off(Client(10, 100 * use))

    assert 0.9 < found < 1.4


FEW_LARGE = (1,) * 19 + (6,)
ALL_SORTS = (1, 1, 1.5, 2, 3, 4)


@pytest.mark.parametrize("times", [FEW_LARGE, ALL_SORTS])
def test_where_they_differ_one_at_a_time_takes_what_a_large_one_does(times):
    client = Client(4, 50, is_serial=True, times=times)

    assert off(client) == [pytest.approx(1)]
    assert off(client, knows_sizes=False) == [pytest.approx(1 / max(times))]


@pytest.mark.parametrize("times", [FEW_LARGE, ALL_SORTS])
@pytest.mark.parametrize("use", [0.2, 0.5, 0.8])
def test_where_they_differ_those_by_chance_wait_for_large_ones(use, times):
    client = Client(4, 250 * use * len(times) / sum(times), times=times)

    (found,), (blind,) = off(client), off(client, knows_sizes=False)

    assert 0.9 < found < 1.3
    assert blind < 0.5


@pytest.mark.parametrize("use", [0.2, 0.5, 0.7])
@pytest.mark.parametrize("thinks_ms", [4, 40])
def test_where_they_differ_one_at_a_time_beside_others_by_chance(use, thinks_ms):
    serial = Client(4, 1000 / thinks_ms, is_serial=True, times=ALL_SORTS)
    others = Client(4, 250 * use * len(FEW_LARGE) / sum(FEW_LARGE), times=FEW_LARGE)

    found = off(serial, others)

    assert all(0.5 < each < 2 for each in found), found
