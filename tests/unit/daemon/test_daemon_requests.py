"""For which processes the poller is asked for requests."""

from types import SimpleNamespace

import pytest

from tandemd.core.model import JobClass, JobSpec, Usage
from tandemd.core.tuner.latency import RequestKind
from tandemd.observers.requests import look

MS = 1_000_000


def job(*process_ids, marking=(), **spec):
    usages = {one: Usage(process_id=one, marks_requests=one in marking) for one in process_ids}
    processes = {one: SimpleNamespace(usage=usage) for one, usage in usages.items()}
    return SimpleNamespace(spec=JobSpec(**spec), processes=processes)


class Poller:
    """All of its processes marked a request that took 5 ns, was held for 3, and may take 7."""

    def __init__(self):
        self.asked = []

    def take_requests(self, *, process_id, idle_ns, limit_ns):
        self.asked.append((process_id, limit_ns))
        return int(RequestKind.MARKED), [5], 1, [7], [3]


@pytest.mark.parametrize(("misses_are_news", "limit_ns"), [(True, 9 * MS), (False, 0)])
def test_those_of_who_is_to_be_quick_are_looked_for_and_of_others_those_that_they_mark(
    misses_are_news, limit_ns
):
    poller = Poller()
    jobs = [
        job(1),
        job(2, job_class=JobClass.LATENCY),
        job(3, slo_p99_ns=9 * MS),
        job(4, 5, marking=(5,)),
    ]

    found = list(look(poller, jobs, 1, misses_are_news=misses_are_news))

    assert poller.asked == [(2, 0), (3, limit_ns), (5, 0)]
    assert [event.process_id for event in found] == [2, 3, 5]
    assert {(one.kind, one.durations_ns, one.said_ns, one.held_ns) for one in found} == {
        (RequestKind.MARKED, (5,), (7,), (3,))
    }
