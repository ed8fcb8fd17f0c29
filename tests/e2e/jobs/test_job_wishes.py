"""A job that asks not to lose the GPU for a moment, with the real daemon."""

import pytest

KERNELS = 25  # of about 2 ms: five quanta
INSIDE = f"""
import tandem
def inside():
    with tandem.critical(max_ms=10_000):
        for _ in range({KERNELS}): waiting.short(gpu)
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
    begun_ns, ended_ns = mine[0]["t_start_ns"], mine[-1]["t_end_ns"]
    between = [one for one in place.ran(rival.pid) if begun_ns < one["t_start_ns"] < ended_ns]
    assert bool(between) is is_cut
