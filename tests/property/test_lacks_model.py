"""The memory that stays for lack of host room, against looking at one process after another."""

from hypothesis import given
from hypothesis import strategies as st

from tandemd.core.memory.homes import PIECE, UNIT, Home
from tandemd.core.memory.lacks import Lack, Lacks, lacks_bytes, least_bytes
from tandemd.core.memory.swap_places import Place
from tandemd.core.model import Job, JobSpec, Process, Usage

MANY = 40 * UNIT
PARTS = st.builds(
    lambda has, away, filed, pool, denied: (has, min(away, has), min(filed, away), pool, denied),
    st.integers(0, 60),
    st.integers(0, 60),
    st.integers(0, 5),
    st.integers(0, 60),
    st.sampled_from([0, 0, 0, 3, 80]),
)
GROUPS = st.lists(
    st.tuples(st.lists(PARTS, min_size=1, max_size=2), st.integers(0, 20)), max_size=6
)
LEFT = st.integers(-UNIT, 4 * MANY)


def place(has, away, filed, pool, denied):
    """A process with these units in all, on the host and in files, and a pool of this size."""
    size = has * UNIT
    usage = Usage(
        process_id=1,
        device_bytes=size,
        swappable_bytes=size,
        swapped_bytes=away * UNIT,
        filed_bytes=filed * UNIT,
    )
    process = Process(process_id=1, job_id=1, gpu=0, usage=usage, unheld_bytes=denied * UNIT)
    home = Home(process=process)
    home.give(1, pool * UNIT)
    job = Job(job_id=1, uid=1000, spec=JobSpec(), arrival=1, created_ns=0, registered=True)
    return Place(process=process, job=job, home=home)


def found(parts):
    return [place(*part) for part in parts]


def searched(places, left_bytes):
    """Return the least that can stay, by trying every amount."""
    resident = sum(one.resident_bytes for one in places)
    total = sum(one.process.usage.swappable_bytes for one in places)
    counts = range(total // UNIT + 1)
    fits = (n * UNIT for n in counts if lacks_bytes(places, n * UNIT) <= left_bytes)
    return min(resident, next(fits, resident))


def one_by_one(lacks, left_bytes, but):
    """Return what stays of all: each gets the room that those before it left."""
    stuck = 0
    for number, lack in enumerate(lacks):
        if number != but:
            least = max(lack.kept_bytes, searched(lack.places, left_bytes))
            left_bytes -= lacks_bytes(lack.places, least) if least < _here(lack) else 0
            stuck += least - lack.kept_bytes
    return stuck


def _here(lack):
    return lack.kept_bytes + lack.here_bytes


@given(st.lists(PARTS, min_size=1, max_size=3), LEFT)
def test_what_has_to_stay_of_a_group_is_the_least_that_the_host_has_room_for(parts, left_bytes):
    places = found(parts)

    assert least_bytes(places, left_bytes) == searched(places, left_bytes)


@given(GROUPS, LEFT, st.data())
def test_what_has_to_stay_of_many_is_what_each_leaves_to_the_next(groups, left_bytes, data):
    lacks = []
    for parts, kept in groups:
        places = found(parts)
        held = sum(one.process.usage.swappable_bytes for one in places)
        lack = Lack.of(places, min(kept * UNIT, held))
        if lack is not None:
            lacks.append(lack)
    but = data.draw(st.none() | st.integers(0, len(lacks) - 1)) if lacks else None

    assert Lacks(lacks).stuck_bytes(left_bytes, but=but) == one_by_one(lacks, left_bytes, but)


def test_one_of_a_thousand_who_waits_asks_of_a_few_only():
    """The cost of a decision must not grow with the square of the number of jobs."""
    asked = []

    class Counted(Home):
        def least_bytes(self, left_bytes):
            asked.append(self)
            return super().least_bytes(left_bytes)

    lacks = []
    for _ in range(1000):
        one = place(20, 0, 0, 0, 0)
        one.home = Counted(process=one.process)
        lacks.append(Lack.of([one], 0))
    line = Lacks(lacks)

    stuck = [line.stuck_bytes(30 * UNIT + PIECE, but=number) for number in range(1000)]

    assert len(asked) <= len(stuck)
    assert len(set(stuck)) == 1
