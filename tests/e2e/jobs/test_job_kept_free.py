"""Memory that is kept free of all jobs together: jobs get 768 MiB of a device of 1 GiB."""

import json
import signal

import pytest
from running_job import until

MIB = 1 << 20
OUT_OF_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"
TOTAL = 1024 * MIB
CONTEXTS_MIB = 64  # of two jobs, and what is counted late


def keep(place, text):
    path = place.folder / "config.toml"
    path.write_text(f'[gpu."*"]\nreserve_memory = "{text}"\n')
    return "--config", str(path)


@pytest.fixture
def place(fresh_place):
    fresh_place.start_daemon(*keep(fresh_place, "256MiB"))
    return fresh_place


def free(job):
    return job.do("memory()[0]")


def sees_free(job, mib):
    """Wait until the job sees it; it hears of the others' memory with a small delay."""
    until(lambda: mib - CONTEXTS_MIB <= free(job) / MIB <= mib, what=f"{mib} MiB are free")


def test_jobs_see_a_smaller_gpu_and_get_no_more_than_that_together(place):
    one, other = place.job("one"), place.job("other", "-m", "600MiB")
    assert one.do("memory()[1:]") == (768 * MIB, 768 * MIB)
    assert other.do("memory()[1]") == 600 * MIB

    contexts_bytes = place.used_bytes()
    held = one.do(f"int(alloc({500 * MIB}))")
    sees_free(other, 268)
    assert other.do(f"alloc({300 * MIB}).__str__()") == OUT_OF_MEMORY
    assert other.do(f"int(alloc({180 * MIB}))")
    sees_free(one, 88)
    assert one.do(f"alloc({100 * MIB}).__str__()") == OUT_OF_MEMORY
    assert place.used_bytes() - contexts_bytes <= TOTAL - 256 * MIB

    assert one.do(f"free({held})") == "CUDA_SUCCESS"
    sees_free(one, 588)
    explained = place.tandem("explain", "other")
    assert "where 256 MiB is kept free (gpu.*.reserve_memory)" in explained
    assert "told out of memory by what is kept free of all jobs on its gpu" in explained


def test_without_it_the_same_jobs_get_all_of_it(fresh_place):
    fresh_place.start_daemon()
    one, other = fresh_place.job("one"), fresh_place.job("other")
    assert one.do("memory()[1]") == TOTAL

    assert one.do(f"int(alloc({500 * MIB}))")
    assert other.do(f"int(alloc({300 * MIB}))")


def test_it_is_shown_where_gpus_are(place):
    (gpu,) = json.loads(place.tandem("gpus", "--json"))
    assert (gpu["memory_total_bytes"], gpu["memory_reserved_bytes"]) == (TOTAL, 256 * MIB)
    assert "256 MiB of its memory are kept free of all jobs" in place.tandem("gpus")
    with place.client() as client:
        assert "tandem_gpu_memory_reserved_bytes{" in client.metrics()


def test_a_hup_changes_it_for_what_comes_and_takes_nothing(place):
    job = place.job("job")
    held = job.do(f"int(alloc({600 * MIB}))")

    keep(place, "512MiB")
    place.daemon.send_signal(signal.SIGHUP)
    until(lambda: job.do("memory()[1]") == 512 * MIB, what="the other one")
    assert job.do(f"alloc({MIB}).__str__()") == OUT_OF_MEMORY
    assert "they keep what they have and get no more" in place.tandem("explain", "job")

    keep(place, "0")
    place.daemon.send_signal(signal.SIGHUP)
    until(lambda: job.do("memory()[1]") == TOTAL, what="none")
    assert job.do(f"int(alloc({300 * MIB}))")
    assert job.do(f"free({held})") == "CUDA_SUCCESS"


def test_an_allocation_that_may_wait_waits_for_what_others_hold(place):
    holder, waiter = place.job("holder"), place.job("waiter", "--wait-memory=1h")
    held = holder.do(f"int(alloc({500 * MIB}))")
    with place.client() as client:
        until(lambda: client.job("holder").resident_bytes > 500 * MIB, what="it is told")

    waiter.start(f"int(alloc({400 * MIB}))")
    with place.client() as client:
        until(lambda: client.job("waiter").memory_wait_place == 1, what="it stands in line")
        assert "device memory, 1st in line; others hold j-" in client.job("waiter").reason
    assert holder.do(f"free({held})") == "CUDA_SUCCESS"

    assert waiter.result()


def test_memory_that_can_be_moved_goes_as_if_the_gpu_were_smaller(place):
    kept = place.job("kept", "--swappable")
    kept.do("exec('import swapping', globals())")
    addresses = kept.do(f"swapping.keep(*{[100 * MIB] * 5})")
    before = place.used_bytes()
    other = place.job("other", "--swappable")
    contexts_bytes = 2 * (place.used_bytes() - before)

    assert other.do(f"int(alloc({400 * MIB}))")  # it would fit beside them, if none were kept free

    with place.client() as client:
        until(lambda: client.job("kept").swapped_bytes, what="it is told")
        assert place.used_bytes() - contexts_bytes <= TOTAL - 256 * MIB
    assert kept.do(f"swapping.kept({addresses}, {[100 * MIB] * 5})") == [True] * 5
