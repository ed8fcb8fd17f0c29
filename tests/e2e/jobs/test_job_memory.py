import signal
import subprocess
import sys

import pytest
from running_job import until

MIB = 1 << 20
OUT_OF_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"


def test_a_limit_is_shown_enforced_and_given_back(place):
    job = place.job("limited", "-m", "20MiB")
    free, total, device = job.do("memory()")
    assert (total, device) == (20 * MIB, 20 * MIB)
    assert free == 20 * MIB - 4  # 4 bytes for the word it computes with

    first = job.do(f"int(alloc({15 * MIB}))")

    assert job.do(f"alloc({6 * MIB}).__str__()") == OUT_OF_MEMORY
    assert job.do("memory()")[0] == 5 * MIB - 4
    assert job.do(f"free({first})") == "CUDA_SUCCESS"
    assert job.do(f"free(alloc({19 * MIB}))") == "CUDA_SUCCESS"
    assert job.end() == 0


def test_a_job_hears_that_others_wait_for_its_memory(place):
    holder, waiter = place.job("holder"), place.job("waiter", "--wait-memory")
    held = holder.do(f"int(alloc({700 * MIB}))")
    assert holder.do("marks.memory_is_wanted()") is False

    waiter.start(f"int(alloc({700 * MIB}))")
    until(lambda: holder.do("marks.memory_is_wanted()"), what="a word of who waits")
    assert holder.do(f"free({held})") == "CUDA_SUCCESS"

    assert waiter.result() > 0
    until(lambda: not holder.do("marks.memory_is_wanted()"), what="a word that nobody waits")


def test_a_limit_can_be_changed_while_the_job_runs(place):
    job = place.job("limited", "-m", "20MiB")

    def shown_mib():
        return job.do("memory()")[1] // MIB

    place.tandem("set", "limited", "memory=40MiB")
    while shown_mib() != 40:
        pass
    big = job.do(f"int(alloc({30 * MIB}))")
    place.tandem("set", "limited", "memory=10MiB")
    while shown_mib() != 10:
        pass
    assert job.do("memory()")[0] == 0  # over its limit: it keeps what it has and gets nothing more
    assert job.do("alloc(1).__str__()") == OUT_OF_MEMORY
    assert job.do(f"free({big})") == "CUDA_SUCCESS"
    assert job.do(f"free(alloc({5 * MIB}))") == "CUDA_SUCCESS"

    place.tandem("set", "limited", "memory=none")
    while shown_mib() == 10:
        pass
    assert job.do(f"free(alloc({30 * MIB}))") == "CUDA_SUCCESS"


def test_a_share_can_be_set_while_the_job_runs(place):
    job = place.job("limited", "-m", "20MiB")

    def shown_mib():
        return job.do("memory()")[1] // MIB

    place.tandem("set", "limited", "memory=30%")  # of the device's 1 GiB
    while shown_mib() != 307:
        pass
    held = job.do(f"int(alloc({100 * MIB}))")
    place.tandem("set", "limited", "memory=5%")
    while shown_mib() != 51:
        pass
    assert job.do(f"alloc({MIB}).__str__()") == OUT_OF_MEMORY
    assert job.do(f"free({held})") == "CUDA_SUCCESS"
    assert job.do(f"free(alloc({50 * MIB}))") == "CUDA_SUCCESS"
    explained = place.explain("limited")
    assert "set: memory 20 MiB -> 307.2 MiB" in explained
    assert "set: memory 307.2 MiB -> 51.2 MiB" in explained


def test_what_a_job_was_told_just_before_it_ended_is_in_its_history(place):
    job = place.job("limited", "-m", "20MiB")
    job.start(f"alloc({64 * MIB}) and os._exit(3)")
    assert job.end() == 3

    told = "ended; was told out of memory once: 1 by its limit"
    until(lambda: told in place.explain("limited"), what="it is told")
    assert "told out of memory by its limit of 20 MiB" in place.explain("limited")


def test_a_limit_is_one_for_all_processes_of_a_job(place):
    parent = place.job("limited", "-m", "20MiB")
    second = place.joining(parent)
    with place.client() as client:
        held = parent.do(f"int(alloc({15 * MIB}))")
        assert held
        while client.job("limited").resident_bytes < 15 * MIB:
            pass

        def left():
            return second.do("memory()")[0]

        while left() > 5 * MIB:
            pass
        assert second.do(f"alloc({6 * MIB}).__str__()") == OUT_OF_MEMORY
        assert parent.do(f"free({held})") == "CUDA_SUCCESS"
        while left() < 15 * MIB:
            pass
        assert second.do(f"free(alloc({15 * MIB}))") == "CUDA_SUCCESS"


def test_a_share_of_the_gpu_is_a_limit_as_good_as_any(place):
    job = place.job("limited", "-m", "25%")

    free, total, device = job.do("memory()")
    assert total == device
    assert free == total - 4
    assert job.do(f"alloc({total}).__str__()") == OUT_OF_MEMORY
    with place.client() as client:
        assert client.job("limited").memory_quota_bytes == total


def test_an_allocation_waits_until_another_job_gives_memory_back(place):
    holder = place.job("holder")
    total = holder.do("memory()[1]")
    held = holder.do(f"int(alloc({total * 3 // 4}))")
    waiter = place.job("waiter", "--wait-memory=1h")
    waiter.start(f"int(alloc({total // 2}))")
    with place.client() as client:
        until(lambda: client.job("waiter").memory_wait_place == 1, what="it stands in line")
        job = client.job("waiter")
        assert (job.state, job.memory_wait_bytes) == ("waiting", total // 2)
        assert job.reason.startswith("waits for ")
        assert "device memory, 1st in line; others hold j-" in job.reason
        assert "tandem_job_memory_waiting_bytes" in client.metrics()
        until(
            lambda: [wait.reason for wait in client.explain("waiter").waits] == ["memory"],
            what="the wait is counted before it is over",
        )
    assert f"+{total // 2 >> 20} MiB" in place.tandem("ps")

    assert holder.do(f"free({held})") == "CUDA_SUCCESS"

    assert waiter.result()
    with place.client() as client:
        until(lambda: not client.job("waiter").memory_wait_place, what="it has left the line")


def test_without_waiting_the_same_allocation_fails_at_once(place):
    holder = place.job("holder")
    total = holder.do("memory()[1]")
    assert holder.do(f"int(alloc({total * 3 // 4}))")

    assert place.job("other").do(f"alloc({total // 2}).__str__()") == OUT_OF_MEMORY


def timed(call):
    """Return an expression for (result, ns) of the call, not counting the wait for a line."""
    return f"(lambda began_ns: (str({call}), now_ns() - began_ns))(now_ns())"


def test_a_wait_ends_with_out_of_memory_when_its_time_is_over(place):
    holder = place.job("holder")
    total = holder.do("memory()[1]")
    assert holder.do(f"int(alloc({total * 3 // 4}))")
    waiter = place.job("waiter", "--wait-memory=1s")

    told, waited_ns = waiter.do(timed(f"alloc({total // 2})"))

    assert told == OUT_OF_MEMORY
    assert 1_000_000_000 <= waited_ns < 1_100_000_000


def test_a_job_that_alone_is_in_its_own_way_does_not_wait(place):
    job = place.job("limited", "-m", "20MiB", "--wait-memory=60s")
    assert job.do(f"int(alloc({15 * MIB}))")

    for size in (6 * MIB, 21 * MIB):
        told, waited_ns = job.do(timed(f"alloc({size})"))

        assert told == OUT_OF_MEMORY
        assert waited_ns < 1_000_000_000


def test_nothing_waits_while_a_stream_captures(place):
    holder = place.job("holder")
    total = holder.do("memory()[1]")
    assert holder.do(f"int(alloc({total * 3 // 4}))")
    job = place.job("capturing", "--wait-memory=60s")
    assert job.do("str(s := ok(cu.cuStreamCreate(1)))")
    relaxed = "cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED"
    job.do(f"str(ok(cu.cuStreamBeginCapture(s, {relaxed})))")

    told, waited_ns = job.do(timed(f"alloc({total // 2})"))

    assert told == OUT_OF_MEMORY
    assert waited_ns < 1_000_000_000


def test_every_allocator_waits(place):
    holder = place.job("holder")
    total = holder.do("memory()[1]")
    waiter = place.job("waiter", "--wait-memory=1h")
    waiter.do("exec('import allocating', globals())")
    with place.client() as client:
        for name in waiter.do("list(allocating.ALLOCATORS)"):
            held = holder.do(f"int(alloc({total * 3 // 4}))")
            waiter.start(f"allocating.take('{name}', {total // 2})")
            until(lambda: client.job("waiter").memory_wait_bytes, what=f"{name} stands in line")
            assert holder.do(f"free({held})") == "CUDA_SUCCESS"
            assert waiter.result() == "CUDA_SUCCESS", name
            assert waiter.do("allocating.give_back()") == "CUDA_SUCCESS", name


def test_who_said_no_is_counted(place):
    holder = place.job("holder")
    total = holder.do("memory()[1]")
    assert holder.do(f"int(alloc({total * 3 // 4}))")
    job = place.job("refused", "-m", "75%", "--wait-memory=1s")
    assert job.do(f"alloc({total}).__str__()") == OUT_OF_MEMORY  # quota: it can never be had
    assert job.do(f"alloc({total // 2}).__str__()") == OUT_OF_MEMORY  # line: its time was over
    other = place.job("other", "-m", "75%")
    assert other.do(f"alloc({total * 4 // 5}).__str__()") == OUT_OF_MEMORY  # quota
    assert other.do(f"alloc({total // 2}).__str__()") == OUT_OF_MEMORY  # device

    def counted(name):
        with place.client() as client:
            label = f'job="{client.job(name).name}"'
            lines = [one for one in client.metrics().splitlines() if label in one]
        found = [one for one in lines if one.startswith("tandem_job_oom_total")]
        return {one.split('decision="')[1].split('"')[0]: float(one.split()[1]) for one in found}

    until(lambda: counted("refused") == {"quota": 1, "device": 0, "line": 1}, what="it is told")
    until(lambda: counted("other") == {"quota": 1, "device": 1, "line": 0}, what="it is told")


def test_a_pool_that_was_refused_goes_on(place):
    job = place.job("limited", "-m", "64MiB")
    job.do("exec('import allocating', globals())")
    first = job.do(f"allocating.take('from_pool', {20 * MIB})")
    assert job.do(f"allocating.take('from_pool', {60 * MIB})") == OUT_OF_MEMORY

    assert (first, job.do(f"allocating.take('from_pool', {30 * MIB})")) == ("CUDA_SUCCESS",) * 2
    assert job.do("allocating.give_back()") == "CUDA_SUCCESS"
    assert job.do(f"free(alloc({62 * MIB}))") == "CUDA_SUCCESS"  # the pool gave up what it kept


def test_a_big_request_is_not_starved_by_small_ones_behind_it(place):
    holder = place.job("holder")
    total = holder.do("memory()[1]")
    held = holder.do(f"int(alloc({total * 3 // 4}))")
    big = place.job("big", "--wait-memory=1h")
    small = place.job("small", "--wait-memory=1h")
    with place.client() as client:
        big.start(f"int(alloc({total // 2}))")
        until(lambda: client.job("big").memory_wait_place == 1, what="the big one waits")
        small.start(f"int(alloc({MIB}))")
        until(lambda: client.job("small").memory_wait_place == 2, what="the small one is behind")
        assert f"2nd in line behind {client.job('big').name}" in place.explain("small")

        big.kill()  # so it leaves the line
        assert small.result()
    assert holder.do(f"free({held})") == "CUDA_SUCCESS"


@pytest.mark.parametrize("option", ["--memory-min=10MiB", "--swappable"])
def test_who_need_not_wait_takes_what_is_free_whoever_waits(place, option):
    holder = place.job("holder")
    held = holder.do(f"int(alloc({700 * MIB}))")
    waiter = place.job("waiter", "--wait-memory")
    waiter.start(f"int(alloc({700 * MIB}))")
    until(lambda: "1st in line" in place.explain("waiter"), what="it waits")

    other = place.job("other", option)
    taken = [other.do(f"alloc({MIB}).__str__()") for _ in range(3)]
    too_much = other.do(f"alloc({900 * MIB}).__str__()")

    assert OUT_OF_MEMORY not in taken
    assert too_much == OUT_OF_MEMORY
    until(lambda: "1 by the driver" in place.explain("other"), what="it is told")
    holder.do(f"free({held})")
    assert waiter.result() > 0


def test_a_raised_limit_ends_a_wait_and_a_lowered_one_takes_nothing(place):
    job = place.job("limited", "-m", "20MiB", "--wait-memory=1h")
    second = place.joining(job)
    held = second.do(f"int(alloc({15 * MIB}))")
    until(lambda: job.do("memory()[0]") <= 5 * MIB, what="the first knows of it")
    with place.client() as client:
        job.start(f"int(alloc({10 * MIB}))")
        until(lambda: client.job("limited").memory_wait_place == 1, what="it waits for its limit")
        assert "of its own limit of 20 MiB" in client.job("limited").reason

        place.tandem("set", "limited", "memory=40MiB")

        assert job.result()
        place.tandem("set", "limited", "memory=12MiB", "wait_memory=1s")
        told = (
            "of its limit of 12 MiB: it is over the limit, so it keeps what it has and gets no more"
        )
        assert told in place.explain("limited")
        assert job.do("alloc(1).__str__()") == OUT_OF_MEMORY
        assert second.do(f"free({held})") == "CUDA_SUCCESS"


# The device gives up a stopped program only after seconds of real time.
HUNG = pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM, HUNG])
def test_a_daemon_that_goes_ends_all_waits_and_keeps_the_limit(place, by):
    job = place.job("limited", "-m", "20MiB", "--wait-memory=1h")
    second = place.joining(job)
    assert second.do(f"int(alloc({15 * MIB}))")
    until(lambda: job.do("memory()[0]") <= 5 * MIB, what="the first knows of it")
    with place.client() as client:
        job.start(f"alloc({10 * MIB}).__str__()")
        until(lambda: client.job("limited").memory_wait_place == 1, what="it waits")

    place.end_or_stop_daemon(by)

    assert job.result() == OUT_OF_MEMORY


@pytest.mark.parametrize("by", [signal.SIGKILL, HUNG])
def test_without_a_daemon_the_driver_has_the_last_word(place, by):
    holder = place.job("holder")
    total = holder.do("memory()[1]")
    held = holder.do(f"int(alloc({total * 3 // 4}))")
    big = place.job("big", "--wait-memory=1h")
    behind = place.job("behind", "--wait-memory=1h")
    with place.client() as client:
        big.start(f"alloc({total // 2}).__str__()")
        until(lambda: client.job("big").memory_wait_place == 1, what="the big one waits")
        behind.start(f"int(alloc({MIB}))")
        until(lambda: client.job("behind").memory_wait_place == 2, what="another is behind it")

    place.end_or_stop_daemon(by)

    assert big.result() == OUT_OF_MEMORY
    assert behind.result()  # there was room all along; only the line kept it waiting
    assert holder.do(f"free({held})") == "CUDA_SUCCESS"
    # The software GPU learns of the free and of the other job's request by separate messages.
    until(lambda: place.used_bytes() < total // 2, what="the device has it back")
    assert big.do(f"free(alloc({total // 2}))") == "CUDA_SUCCESS"


def test_more_minima_than_the_gpu_has_are_refused_at_the_start(place):
    holder = place.job("holder", "--memory-min", "900MiB")
    words = [sys.executable, "-m", "tandem.cli", "run"]

    def start(*asked):
        return subprocess.run(
            [*words, *asked, "--", "true"],
            env=place.env,
            capture_output=True,
            text=True,
            check=False,
        )

    within = ("--require", "--memory-min", "512MiB")
    refused, never = start(*within), start("--memory-min", "2GiB")

    assert (refused.returncode, never.returncode) == (75, 125)
    assert "not started: its minimum of 2 GiB does not fit" in never.stderr
    why = "its minimum of 512 MiB does not fit: gpu 0 has 1 GiB, 900 MiB of it promised to others"
    assert why in refused.stderr
    assert "its minimum of 900 MiB of device memory is promised" in place.tandem(
        "explain", "holder"
    )
    assert holder.end() == 0
    until(lambda: start(*within).returncode == 0, what="there is room again")
    # What the outer run is promised counts as its own, not as promised to others.
    nested = ("--require", "--memory-min", "900MiB", "--", *words, "--require")
    until(lambda: start(*nested).returncode == 0, what="it has its own promise")
