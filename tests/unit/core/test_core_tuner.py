"""The tuner and a server whose request times depend on its size."""

from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random

import pytest

from tandemd.core.tuner.tuner import (
    CALM_WINDOWS,
    LEAST_REQUESTS,
    MOST_PHASES,
    Settings,
    Sizes,
    Tuner,
)

MS, SECOND = 1_000_000, 1_000_000_000
SLO_NS = 100 * MS
SETTINGS = Settings(window_ns=2 * SECOND, band=0.1)
JOB, OTHER = 1, 2


@dataclass
class Server:
    """Answers `rate` requests a second, each in about `work_ms * 20 / size`."""

    tuner: Tuner
    size: int = 4
    most: int = 20
    work_ms: float = 36.0
    rate: float = 100.0
    noise: float = 0.05
    is_fixed: bool = False
    now_ns: int = SECOND
    chance: Random = field(default_factory=lambda: Random(7))
    changes: list = field(default_factory=list)
    wishes: list = field(default_factory=list)
    taken: list = field(default_factory=list)

    def run(self, seconds):
        """Runs for `seconds`; returns the changes made meanwhile, as (second, size)."""
        changes, end_ns = [], self.now_ns + int(seconds * SECOND)
        while self.now_ns < end_ns:
            self.now_ns += int(self.chance.expovariate(self.rate) * SECOND)
            noise = self.chance.uniform(-self.noise, self.noise)
            took_ns = int(self.work_ms * MS * 20 / self.size * (1 + noise))
            self.taken.append(took_ns)
            self.tuner.take(JOB, [took_ns], self.now_ns)
            for change in self.tuner.decide({JOB: self.sizes}, SETTINGS, self.now_ns):
                if change.is_wish:
                    self.wishes.append(change.size)
                else:
                    self.size = change.size
                    changes.append((self.now_ns / SECOND, change.size))
        self.changes += changes
        return changes

    def enter(self, phase, after_s=0):
        """Enters another phase; returns the change that follows, if any."""
        now_ns = self.now_ns + after_s * SECOND
        if not self.tuner.enter(JOB, phase, SETTINGS.window_ns, now_ns):
            return None
        return self.tuner.resume(JOB, {JOB: self.sizes}, now_ns)

    @property
    def sizes(self):
        return Sizes(now=self.size, least=1, most=self.most, step=1, is_fixed=self.is_fixed)

    def p99_ns(self):
        newest = sorted(self.taken[-100:])
        return newest[98]


def serving(**settings):
    server = Server(Tuner(), **settings)
    server.tuner.seat({JOB: SLO_NS}, [JOB], server.now_ns)
    return server


def test_a_job_that_misses_grows_by_a_step_a_window_until_it_does_not():
    server = serving(size=4)  # 180 ms

    changes = server.run(30)

    assert [size for _, size in changes] == [5, 6, 7, 8]
    assert server.p99_ns() <= SLO_NS
    assert all(b - a > 0.1 for (a, _), (b, _) in pairwise(changes))


def test_without_the_tuner_the_same_job_misses():
    server = serving(size=4, is_fixed=True)

    server.run(30)

    assert server.size == 4
    assert server.p99_ns() > SLO_NS
    assert server.wishes  # it says what it would do


@pytest.mark.parametrize("size", [4, 7, 8, 20])
@pytest.mark.parametrize("noise", [0.0, 0.05, 0.3])
def test_with_constant_load_nothing_changes_for_a_minute_once_it_has_settled(size, noise):
    server = serving(size=size, noise=noise)
    server.run(60 + 20 * (CALM_WINDOWS + 1) * 2)

    assert server.run(60) == []
    assert server.p99_ns() <= SLO_NS


def can_spare_one(server):
    return server.tuner.can_spare(JOB, server.size, SETTINGS.band)


def test_who_gave_is_asked_again_only_once_a_window_shows_what_it_has_to_spare_now():
    server = serving(size=10, is_fixed=True)  # 72 ms; 5 s hold a whole window whenever it began
    assert not can_spare_one(server)
    server.run(5)
    assert can_spare_one(server)

    server.size = 9  # 80 ms: another job needed one group
    assert not can_spare_one(server)
    server.run(5)
    assert not can_spare_one(server)

    server.size = 10
    server.run(5)
    assert can_spare_one(server)


@pytest.mark.parametrize(("size", "gives"), [(2, False), (3, True)])
def test_with_few_groups_one_is_given_only_by_who_has_as_much_to_spare(size, gives):
    server = serving(size=size, work_ms=3.0 * size, is_fixed=True)  # 60 ms
    server.run(5)

    assert can_spare_one(server) is gives


def test_nobody_gives_what_it_missed_without():
    server = serving(size=7, is_fixed=True)  # 103 ms
    server.run(5)
    server.size = 8
    server.work_ms = 20  # 50 ms
    server.run(5)

    assert not can_spare_one(server)


def test_a_job_with_far_too_much_gives_it_back_and_stays_below_its_objective():
    server = serving(size=20)

    server.run(300)

    assert server.size in (8, 9)
    assert server.changes == sorted(server.changes)


def test_a_size_that_missed_is_not_tried_again():
    server = serving(size=10)
    server.run(300)
    sizes = [size for _, size in server.changes]

    assert len(sizes) <= 20
    assert server.run(300) == []


def test_it_never_grows_beyond_its_knee():
    server = serving(size=4, most=6)

    server.run(60)

    assert server.size == 6


def test_more_load_is_answered_within_a_window():
    server = serving(size=8)
    server.run(30)
    server.work_ms = 45.0  # as if more requests overlapped

    changes = server.run(30)

    assert changes[0][1] == 9
    assert changes[0][0] - 31 <= 2 * LEAST_REQUESTS / server.rate + 0.1  # as soon as it is certain
    assert server.p99_ns() <= SLO_NS


def test_less_load_lets_it_shrink_again_although_that_size_had_missed():
    server = serving(size=7)
    server.run(60)
    assert server.size == 8

    server.rate, server.work_ms = 40.0, 18.0
    server.run(300)

    assert server.size in (4, 5)


def test_a_single_window_with_more_requests_is_no_other_load():
    server = serving(size=1, work_ms=7.5)  # 150 ms; with size two far below the objective
    server.run(60)

    served(server, [60] * 4 * int(server.rate), seconds=1)

    assert server.run(60) == []


def test_other_neighbours_are_another_matter():
    server = serving(size=7)
    server.run(60)
    assert server.size == 8

    is_news = server.tuner.seat({JOB: SLO_NS}, [JOB, OTHER], server.now_ns)

    assert is_news
    assert server.tuner.residual(JOB) is None
    assert not server.tuner.seat({JOB: SLO_NS}, [JOB, OTHER], server.now_ns)


def test_a_phase_that_comes_again_and_lasts_gets_its_size_at_once():
    server = serving(size=8)
    server.run(20)
    assert server.enter(5) is None  # seen for the first time
    server.work_ms = 45.0
    server.run(30)
    assert server.size == 10

    back = server.enter(0)
    server.size = back.size
    again = server.enter(5, after_s=1)

    assert (back.size, again.size) == (8, 10)


def test_another_rate_in_another_phase_is_no_other_load():
    server = serving(size=8)
    server.run(20)
    server.enter(5)
    server.rate = 20.0
    server.run(20)
    server.size = 10

    assert server.enter(0).size == 8  # the size learned in its phase is remembered


def test_a_phase_that_comes_again_gets_no_more_than_there_is_and_nothing_that_is_fixed():
    server = serving(size=10)
    server.run(20)
    server.enter(5)
    server.size = 4
    server.run(3)

    server.most, server.is_fixed = 9, True
    assert server.enter(0) is None
    server.enter(5, after_s=20)
    server.is_fixed = False

    assert server.enter(0, after_s=40).size == 9


def test_a_phase_that_comes_again_takes_nothing_of_what_it_has_where_there_is_less_now():
    server = serving(size=10)
    server.run(20)
    assert server.enter(5) is None

    server.most = server.size - 1

    assert server.enter(0, after_s=20) is None


def test_a_phase_that_comes_again_does_not_go_back_to_a_size_that_missed():
    server = serving(size=4, most=4)
    server.run(20)
    server.enter(5)
    server.size = server.most = 8

    assert server.enter(0, after_s=20) is None


def test_a_phase_that_comes_again_is_a_change_and_begins_the_windows_of_all():
    server = serving(size=8)
    server.tuner.seat({JOB: SLO_NS, OTHER: SLO_NS}, [JOB, OTHER], server.now_ns)
    server.run(20)
    server.enter(5)
    server.size = 4
    server.tuner.take(OTHER, [150 * MS] * 30, server.now_ns + SECOND)
    assert server.tuner.is_due(SETTINGS, server.now_ns + SECOND)

    assert server.enter(0, after_s=1).size == 8

    sizes = {JOB: server.sizes, OTHER: server.sizes}
    assert server.tuner.decide(sizes, SETTINGS, server.now_ns + SECOND) == []


def test_phases_shorter_than_a_window_are_no_reason_for_another_size():
    server = serving(size=8)
    server.tuner.enter(JOB, 5, SETTINGS.window_ns, server.now_ns)
    for _ in range(1000):
        for phase in (6, 5):
            server.run(0.01)
            assert server.enter(phase) is None


def test_of_two_that_miss_the_one_that_misses_by_more_grows():
    tuner = Tuner()
    tuner.seat({JOB: SLO_NS, OTHER: SLO_NS}, [JOB, OTHER], SECOND)
    tuner.take(JOB, [120 * MS] * 30, 2 * SECOND)
    tuner.take(OTHER, [150 * MS] * 30, 2 * SECOND)
    sizes = Sizes(now=5, least=1, most=20, step=1)

    (change,) = tuner.decide({JOB: sizes, OTHER: sizes}, SETTINGS, 2 * SECOND)

    assert (change.job_id, change.size) == (OTHER, 6)
    assert "50% above its objective" in change.why


def test_what_is_fixed_does_not_keep_others_from_growing():
    tuner = Tuner()
    tuner.seat({JOB: SLO_NS, OTHER: SLO_NS}, [JOB, OTHER], SECOND)
    tuner.take(JOB, [120 * MS] * 30, 2 * SECOND)
    tuner.take(OTHER, [150 * MS] * 30, 2 * SECOND)
    sizes = Sizes(now=5, least=1, most=20, step=1)
    fixed = Sizes(now=5, least=1, most=20, step=1, is_fixed=True)

    wish, change = tuner.decide({JOB: sizes, OTHER: fixed}, SETTINGS, 2 * SECOND)

    assert (wish.job_id, wish.is_wish) == (OTHER, True)
    assert (change.job_id, change.size) == (JOB, 6)


def served(server, durations_ms, seconds):
    """Requests of these durations end, evenly spread; returns the changes that follow."""
    for duration_ms in durations_ms:
        server.now_ns += int(seconds * SECOND / len(durations_ms))
        server.tuner.take(JOB, [duration_ms * MS], server.now_ns)
    return server.tuner.decide({JOB: server.sizes}, SETTINGS, server.now_ns)


FEW_MISS = [90] * 37 + [110] * 3


@pytest.mark.parametrize(("durations_ms", "expected"), [(FEW_MISS, 0), ([110] * 40, 1)])
def test_a_first_window_is_cut_short_only_if_most_miss(durations_ms, expected):
    server = serving()

    assert len(served(server, durations_ms, seconds=0.2)) == expected


def test_a_window_is_cut_short_by_as_many_misses_as_are_too_many_at_the_newest_rate():
    server = serving()
    served(server, [90] * 40, seconds=2)
    assert len(served(server, FEW_MISS, seconds=0.2)) == 1  # of 40 requests

    assert len(served(server, [110] * 400, seconds=0.4)) == 1
    assert len(served(server, FEW_MISS, seconds=0.4)) == 0  # of hundreds of expected requests


def test_requests_that_began_before_a_change_tell_nothing_of_it():
    server = serving(size=4)
    server.run(1)
    changed = len(server.changes)
    assert changed

    server.tuner.take(JOB, [10 * SECOND] * 100, server.now_ns)

    assert server.tuner.decide({JOB: server.sizes}, SETTINGS, server.now_ns + SECOND) == []


def test_as_many_requests_as_say_something_end_a_window():
    tuner = Tuner()
    tuner.seat({JOB: SLO_NS}, [JOB], SECOND)
    tuner.take(JOB, [90 * MS] * LEAST_REQUESTS, 2 * SECOND)

    assert not tuner.is_due(SETTINGS, SECOND + SETTINGS.window_ns - 1)
    assert tuner.is_due(SETTINGS, SECOND + SETTINGS.window_ns)


def test_the_window_that_began_first_is_the_first_to_end():
    tuner, sizes = Tuner(), Sizes(now=5, least=1, most=20, step=1)
    tuner.seat({JOB: SLO_NS, OTHER: SLO_NS}, [JOB, OTHER], SECOND)
    tuner.take(JOB, [90 * MS] * LEAST_REQUESTS, 2 * SECOND)
    tuner.take(OTHER, [150 * MS] * LEAST_REQUESTS, 2 * SECOND)  # certain to miss: its window ends
    told = tuner.decide({JOB: sizes, OTHER: replace(sizes, is_fixed=True)}, SETTINGS, 2 * SECOND)
    assert [change.is_wish for change in told] == [True]

    tuner.take(OTHER, [90 * MS] * LEAST_REQUESTS, 2 * SECOND)

    assert tuner.is_due(SETTINGS, SECOND + SETTINGS.window_ns)


def test_few_requests_say_nothing():
    tuner = Tuner()
    tuner.seat({JOB: SLO_NS}, [JOB], SECOND)
    tuner.take(JOB, [900 * MS] * (LEAST_REQUESTS - 1), 2 * SECOND)

    assert tuner.decide({JOB: Sizes(now=5, least=1, most=20, step=1)}, SETTINGS, 9 * SECOND) == []


def test_a_few_misses_decide_where_many_requests_are_usual_however_young_the_window_is():
    tuner, sizes = Tuner(), {JOB: Sizes(now=5, least=1, most=20, step=1)}
    tuner.seat({JOB: SLO_NS}, [JOB], SECOND)
    tuner.take(JOB, [90 * MS] * 300, 3 * SECOND)  # the window may have three misses
    assert tuner.decide(sizes, SETTINGS, 3 * SECOND) == []

    def changes_after(*took_ms):
        tuner.take(JOB, [ms * MS for ms in took_ms], 3 * SECOND + 200 * MS)
        return tuner.decide(sizes, SETTINGS, 3 * SECOND + 200 * MS)

    assert changes_after(110, 110, 110, 90, 90) == []
    assert [change.size for change in changes_after(110)] == [6]


def test_what_had_piled_up_makes_nobody_grow_where_many_requests_are_usual():
    tuner, sizes = Tuner(), {JOB: Sizes(now=5, least=1, most=20, step=1)}
    tuner.seat({JOB: SLO_NS}, [JOB], SECOND)
    tuner.take(JOB, [90 * MS] * 98, 3 * SECOND)
    assert tuner.decide(sizes, SETTINGS, 3 * SECOND) == []

    now_ns = 5 * SECOND
    for took_ms in (900, 700, 500, 400, 300, 250, 200, 180, 160, 140, 120, 110):
        now_ns += 10 * MS
        tuner.take(JOB, [took_ms * MS], now_ns)
        assert tuner.decide(sizes, SETTINGS, now_ns) == []


def test_jobs_without_an_objective_are_left_alone():
    tuner = Tuner()
    tuner.seat({}, [JOB], SECOND)
    tuner.take(JOB, [900 * MS] * 100, 2 * SECOND)

    assert not tuner.enter(JOB, 3, SETTINGS.window_ns, SECOND)
    assert tuner.residual(JOB) is None
    assert not tuner.is_due(SETTINGS, 9 * SECOND)


def test_who_has_left_is_forgotten():
    server = serving(size=4)
    server.run(10)

    server.tuner.seat({}, [OTHER], server.now_ns)

    assert server.tuner.residual(JOB) is None
    assert not server.tuner.is_due(SETTINGS, server.now_ns + 60 * SECOND)


def test_of_very_many_phases_the_rest_counts_as_one_that_was():
    server = serving(size=8)
    for phase in range(1, 2 * MOST_PHASES):
        server.run(3)
        server.enter(phase)

    server.size = 9
    assert server.enter(0).size == 8
    assert server.enter(2 * MOST_PHASES) is None


def test_who_can_have_no_size_is_forgotten_and_asked_no_more():
    server = serving(size=4)
    server.tuner.take(JOB, [200 * MS] * 30, server.now_ns + SECOND)
    assert server.tuner.is_due(SETTINGS, server.now_ns + SECOND)

    assert server.tuner.decide({}, SETTINGS, server.now_ns + SECOND) == []

    assert not server.tuner.is_due(SETTINGS, server.now_ns + 60 * SECOND)


def test_what_requests_took_under_another_policy_says_nothing():
    tuner, sizes = Tuner(), {JOB: Sizes(now=5, least=1, most=20, step=1)}
    tuner.seat({JOB: SLO_NS}, [JOB], SECOND, "priority")
    tuner.take(JOB, [10 * MS, *[200 * MS] * (LEAST_REQUESTS - 2)], 2 * SECOND)

    assert tuner.seat({JOB: SLO_NS}, [JOB], 3 * SECOND, "fair")
    tuner.take(JOB, [200 * MS], 4 * SECOND)

    assert not tuner.is_due(SETTINGS, 60 * SECOND)
    assert tuner.decide(sizes, SETTINGS, 60 * SECOND) == []


def both(tuner, seconds, size, needs):
    """Two jobs of one size miss below what each needs; returns the sizes they get."""
    now_ns, sizes = SECOND, []
    for _ in range(seconds * 10):
        now_ns += SECOND // 10
        for job_id, need in needs.items():
            if need:
                tuner.take(
                    job_id, [int(0.6 * SLO_NS if size >= need else 1.2 * SLO_NS)] * 10, now_ns
                )
        has = Sizes(now=size, least=5, most=95, step=5, together=frozenset(needs))
        for change in tuner.decide(dict.fromkeys(needs, has), SETTINGS, now_ns):
            size = change.size
            sizes.append(size)
    return sizes


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        ({JOB: 40, OTHER: 10}, [35, 40]),
        ({JOB: 40, OTHER: 0}, [35, 40]),  # the other has no need
        ({JOB: 10, OTHER: 30}, [35, 30, 25, 30]),
    ],
)
def test_jobs_with_one_size_shrink_together_and_not_below_what_one_of_them_needs(needs, expected):
    tuner = Tuner()
    tuner.seat(dict.fromkeys(needs, SLO_NS), list(needs), SECOND)

    sizes = both(tuner, 300, 40, needs)

    assert sizes == expected
