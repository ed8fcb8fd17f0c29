"""A job asks not to lose the GPU for a moment, or during an iteration; with the real daemon."""

import pytest

KERNELS = 25  # of about 2 ms each: five quanta
INSIDE = f"""
import tandem
def inside():
    with tandem.critical(max_ms=10_000):
        for _ in range({KERNELS}): waiting.short(gpu)
"""
STEPS = 4
ITERATIONS = f"""
import tandem
def iterate():
    tandem.step()  # from the first mark on no others count
    for _ in range({STEPS}):
        for _ in range({KERNELS}): waiting.short(gpu)
        tandem.step()
"""


@pytest.mark.parametrize(("critical_ms", "is_cut"), [(1000, False), (0, True)])
def test_its_block_is_cut_only_where_the_daemon_hears_no_wishes(fresh_place, critical_ms, is_cut):
    place = fresh_place
    place.start_daemon(*place.configured(critical_ms=critical_ms, policy='"fair"'))
    rival, job = (place.job(name, "-p", "batch") for name in ("rival", "wishes"))
    job.do(f"exec({INSIDE!r}, globals())")
    rival.go_on("lambda: waiting.short(gpu)")

    job.do("inside()")

    mine = place.ran(job.pid)[-KERNELS:]
    assert bool(between(mine, place.ran(rival.pid))) is is_cut


@pytest.mark.parametrize(("said", "is_cut"), [("--no-preemptible", False), ("--preemptible", True)])
def test_its_iterations_are_cut_only_where_it_lets_them(fresh_place, said, is_cut):
    place = fresh_place
    place.start_daemon(*place.configured(nonpreemptible_ms=10_000, policy='"fair"'))
    rival, job = place.job("rival", "-p", "batch"), place.job("whole", "-p", "batch", said)
    job.do(f"exec({ITERATIONS!r}, globals())")
    rival.go_on("lambda: waiting.short(gpu)")

    job.do("iterate()")

    theirs, mine = place.ran(rival.pid), place.ran(job.pid)[-STEPS * KERNELS :]
    # Until the daemon hears of an end, what follows it may still be cut: skip the first kernels.
    iterations = [mine[n + 5 : n + KERNELS] for n in range(0, len(mine), KERNELS)]
    assert any(between(one, theirs) for one in iterations) is is_cut
    assert between(mine, theirs)  # it did take turns


def between(mine, theirs):
    """Return their kernels that began between my first and my last."""
    begun_ns, ended_ns = mine[0]["t_start_ns"], mine[-1]["t_end_ns"]
    return [one for one in theirs if begun_ns < one["t_start_ns"] < ended_ns]
