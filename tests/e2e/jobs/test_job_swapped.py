"""A paused job's memory moves to the host to make room, and comes back byte for byte."""

import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import pytest
from running_job import until

from tandem.report.series import swaps_of

MIB = 1 << 20
SIZES = (10 * MIB, 33 * MIB, 3 * MIB)
ALL = 50 * MIB  # in whole units of 2 MiB, one of them for the word it computes with
TOO_MUCH_BESIDE = 980 * MIB  # of the device's 1 GiB
OUT_OF_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"
# Virtual time stands still until the program is told to come.
COMES = """
import ctypes, sys
from cuda.bindings import driver as cu
from gpu import Gpu
clock = ctypes.CDLL("libcuda.so.1"); clock.softgpu_now_ns.restype = ctypes.c_uint64
clock.softgpu_clock_is_virtual()
print("'ready'", flush=True); sys.stdin.readline()
gpu = Gpu()
print((cu.cuMemAlloc({size})[0].name, clock.softgpu_now_ns()), flush=True)
"""


def swappable(place, *options):
    job = place.job("kept", "--swappable", *options)
    job.do("exec('import swapping', globals())")
    return job, job.do(f"swapping.keep(*{SIZES})")


def status(client):
    return client.job("kept")


def test_a_paused_job_makes_room_and_gets_all_back(place):
    job, addresses = swappable(place)
    other = place.job("other")
    with place.client() as client:
        assert other.do(f"alloc({TOO_MUCH_BESIDE}).__str__()") == OUT_OF_MEMORY
        held = place.used_bytes()

        place.tandem("pause", "kept")
        until(lambda: status(client).state == "swapped", what="its memory is on the host")
        until(lambda: status(client).swapped_bytes == ALL, what="all of it is")
        assert held - place.used_bytes() == ALL
        (row,) = (
            r for r in json.loads(place.tandem("ps", "--json")) if r["name"] == job_name(client)
        )
        assert (row["swapped_bytes"], row["resident_bytes"]) == (ALL, 0)
        explained = place.explain("kept")
        assert "its memory is on the host" in explained
        assert "50 MiB of its memory is on the host" in explained
        taken = other.do(f"int(alloc({TOO_MUCH_BESIDE}))")

        place.tandem("resume", "kept")
        job.start(f"swapping.kept({addresses}, {SIZES})")
        until(lambda: "threads waiting now: 1" in place.explain("kept"), what="it waits")
        waits = place.explain("kept")
        assert "of its memory to come back to the gpu; others hold" in waits
        assert other.do(f"free({taken})") == "CUDA_SUCCESS"
        assert job.result() == [True] * 3
        until(lambda: status(client).swapped_bytes == 0, what="it is told")
        assert "its memory is back on the gpu" in place.explain("kept")
    assert job.end() == 0


def test_the_history_tells_what_was_moved_and_the_report_draws_it(place, tmp_path):
    swappable(place)
    with place.client() as client:

        def moves():
            (curve,) = client.memory_history().curves
            return [(swap.size_bytes, swap.is_out) for swap in swaps_of(curve)]

        for verb, last in (("pause", (ALL, True)), ("resume", (ALL, False))):
            place.tandem(verb, "kept")
            until(lambda last=last: moves()[-1:] == [last], what=f"{verb} is seen")
        assert moves() == [(ALL, True), (ALL, False)]
    place.tandem("report", "-o", tmp_path / "report.html")
    assert f"{ALL // MIB} MiB to the host" in (tmp_path / "report.html").read_text()


def job_name(client):
    return status(client).name


def test_who_waits_for_memory_gets_that_of_an_idle_job(place):
    job, addresses = swappable(place)
    other = place.job("other", "--wait-memory")
    taken = other.do(f"int(alloc({TOO_MUCH_BESIDE}))")
    with place.client() as client:
        assert status(client).swapped_bytes > 0
        assert other.do(f"free({taken})") == "CUDA_SUCCESS"
    assert job.do(f"swapping.kept({addresses}, {SIZES})") == [True] * 3


def test_a_job_that_waits_for_more_memory_can_give_up_what_it_has(place):
    job, addresses = swappable(place, "--wait-memory")
    other = place.job("other")
    taken = other.do(f"int(alloc({500 * MIB}))")
    job.start(f"alloc({TOO_MUCH_BESIDE - 100 * MIB}).__str__()")
    until(lambda: "in line" in place.explain("kept"), what="it waits in line")
    with place.client() as client:
        place.tandem("pause", "kept")
        until(lambda: status(client).swapped_bytes == ALL, what="its memory is on the host")
    place.tandem("resume", "kept")
    assert other.do(f"free({taken})") == "CUDA_SUCCESS"
    assert job.result() != OUT_OF_MEMORY
    assert job.do(f"swapping.kept({addresses}, {SIZES})") == [True] * 3


@pytest.mark.parametrize("job_class", ["normal", "batch"])
def test_work_that_was_submitted_before_ends_and_then_memory_goes(place, job_class):
    """The work takes longer than three holds may take to drain."""
    job, addresses = swappable(place, "-p", job_class)
    comes = (sys.executable, "-c", COMES.format(size=TOO_MUCH_BESIDE))
    other = place.starting("other", "--swappable", "-p", job_class, program=comes).ready()
    job.start("swapping.work_through(gpu, word, 60, say)")  # no window is set yet: it is alone
    assert job.result() == "submitted"
    other.start("")
    got, got_ns = other.result()

    assert got == "CUDA_SUCCESS"
    assert job.result() == [67]
    kernels = [one for one in place.ran(job.pid) if one["kind"] == "kernel"]
    assert kernels[-1]["t_end_ns"] - kernels[0]["t_start_ns"] > 5e9
    assert got_ns > kernels[-1]["t_end_ns"]
    assert "undrainable" not in place.explain("kept")
    assert other.end() == 0
    assert job.do(f"swapping.kept({addresses}, {SIZES})") == [True] * 3


def test_a_job_at_work_is_moved_and_goes_on(place):
    job, _ = swappable(place)
    job.go_on("compute")
    with place.client() as client:
        place.tandem("pause", "kept")
        until(lambda: status(client).swapped_bytes == ALL, what="its memory is on the host")
        launches = status(client).launches
        place.tandem("resume", "kept")
        until(lambda: status(client).launches > launches, what="it goes on")
        assert status(client).swapped_bytes == 0


def test_another_daemon_moves_what_the_first_has_not(place):
    job, addresses = swappable(place)
    place.stop_daemon()
    place.start_daemon()
    job.do("compute()")
    with place.client() as client:
        until(lambda: len(client.jobs()) == 1, what="it is attached again")
        (again,) = client.jobs()
        place.tandem("pause", again.name)
        until(lambda: client.job(again.name).swapped_bytes == ALL, what="its memory is away")
        place.tandem("resume", again.name)
    assert job.do(f"swapping.kept({addresses}, {SIZES})") == [True] * 3


@pytest.mark.parametrize("options", [(), ("--no-swappable",)], ids=["not said", "no"])
def test_memory_of_a_job_that_may_not_be_moved_stays(place, options):
    job = place.job("kept", *options)
    job.do("exec('import swapping', globals())")
    addresses = job.do(f"swapping.keep(*{SIZES})")
    held = place.used_bytes()
    with place.client() as client:
        place.tandem("pause", "kept")
        job.start("compute()")
        until(lambda: "threads waiting now: 1" in place.explain("kept"), what="it waits")
        assert status(client).state == "paused"
        assert "not started with --swappable" in place.explain("kept")
        assert place.used_bytes() == held
        place.tandem("resume", "kept")
    assert job.result() == [15]
    assert job.do(f"swapping.kept({addresses}, {SIZES})") == [True] * 3


def test_memory_stays_until_a_capture_is_complete_and_explain_says_so(place):
    job, _ = swappable(place)
    relaxed = "cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED"
    job.do("str(s := ok(cu.cuStreamCreate(1)))")
    job.do(f"str(ok(cu.cuStreamBeginCapture(s, {relaxed})))")
    held = place.used_bytes()
    with place.client() as client:
        place.tandem("pause", "kept")

        why = (
            "its memory stays on the gpu: it is capturing a graph, and the capture has to end first"
        )
        until(lambda: why in place.explain("kept"), what="it says why")
        assert place.used_bytes() == held

        job.do("str(ok(cu.cuStreamEndCapture(s)))")
        until(lambda: status(client).swapped_bytes == ALL, what="all of it is on the host")
        assert "capturing a graph" not in place.explain("kept")
        place.tandem("resume", "kept")


def test_without_room_on_the_host_nothing_moves_and_explain_says_why(fresh_place):
    path = fresh_place.folder / "config.toml"
    path.write_text('[memory]\nhost_limit = "40MiB"\n')
    fresh_place.start_daemon("--config", str(path))
    job, addresses = swappable(fresh_place)
    held = fresh_place.used_bytes()

    fresh_place.tandem("pause", "kept")
    job.start(f"swapping.kept({addresses}, {SIZES})")

    def explained():
        return fresh_place.explain("kept")

    until(lambda: "its memory stays on the gpu: it needs 50 MiB" in explained(), what="it says why")
    assert "host_limit" in explained()
    assert fresh_place.used_bytes() == held
    fresh_place.tandem("resume", "kept")
    assert job.result() == [True] * 3


def test_memory_of_the_host_goes_to_whoever_needs_it_now(fresh_place):
    place = fresh_place
    path = place.folder / "config.toml"
    path.write_text('[memory]\nhost_limit = "60MiB"\n')
    place.start_daemon("--config", str(path))
    job, addresses = swappable(place)
    other = place.job("other", "--swappable")
    other.do("exec('import swapping', globals())")
    others = other.do(f"swapping.keep({30 * MIB})")
    with place.client() as client:

        def goes(name, size):
            place.tandem("pause", name)
            until(lambda: client.job(name).swapped_bytes == size, what="its memory is on the host")

        for _ in range(2):
            goes("kept", ALL)
            place.tandem("resume", "kept")
            assert job.do(f"swapping.kept({addresses}, {SIZES})") == [True] * 3
            # The host has no room for both, so what the first no longer uses goes to the second.
            goes("other", 32 * MIB)
            place.tandem("resume", "other")
            assert still_has((other, others))


def test_an_idle_job_gives_its_memory_to_others_until_its_next_call(place):
    job, addresses = swappable(place)
    other = place.job("other")
    assert other.do(f"alloc({TOO_MUCH_BESIDE}).__str__()") == OUT_OF_MEMORY
    with place.client() as client:
        client.set("kept", idle_release="1s")
        until(lambda: status(client).swapped_bytes == ALL, what="its memory is on the host")
        assert status(client).state == "idle"
    taken = other.do(f"int(alloc({TOO_MUCH_BESIDE}))")
    assert other.do(f"free({taken})") == "CUDA_SUCCESS"
    assert job.do(f"swapping.kept({addresses}, {SIZES})") == [True] * 3


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGSTOP])
def test_a_job_on_the_host_comes_back_without_its_daemon(place, by):
    job, addresses = swappable(place)
    with place.client() as client:
        place.tandem("pause", "kept")
        until(lambda: status(client).swapped_bytes == ALL, what="its memory is on the host")
    place.daemon.send_signal(by)

    assert job.do(f"swapping.kept({addresses}, {SIZES})") == [True] * 3
    assert job.end() == 0


@pytest.fixture
def slow_place(fresh_place):
    """The second copy as the first job moves out takes 10 s; the host has room for only one job."""
    # Copies 1 to 4 are the job's word and its three patterns.
    fresh_place.env["TANDEM_SOFTGPU_FAULTS"] = "slow:2500@6"
    path = fresh_place.folder / "config.toml"
    path.write_text(f'[memory]\nhost_limit = "{ALL // MIB}MiB"\n')
    fresh_place.start_daemon("--config", str(path))
    return fresh_place


def in_the_middle(client):
    return 0 < status(client).swapped_bytes < ALL


def test_a_job_that_is_killed_while_it_copies_leaves_its_homes_and_room_to_others(slow_place):
    job, _ = swappable(slow_place)
    other = slow_place.job("other")
    with slow_place.client() as client:
        slow_place.tandem("pause", "kept")
        until(lambda: in_the_middle(client), what="it copies")
        job.kill()
        until(lambda: len(client.jobs()) == 1, what="it is gone")
        assert other.do("compute()") == [15]
        assert other.do(f"free(alloc({TOO_MUCH_BESIDE}))") == "CUDA_SUCCESS"

        second, addresses = swappable(slow_place)
        slow_place.tandem("pause", "kept")
        until(lambda: status(client).swapped_bytes == ALL, what="the host has room for it")
        slow_place.tandem("resume", "kept")
    assert second.do(f"swapping.kept({addresses}, {SIZES})") == [True] * 3


# The device gives up a stopped program only after seconds of real time.
HUNG = pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)


@pytest.mark.parametrize("by", [signal.SIGKILL, HUNG])
def test_a_daemon_that_goes_while_one_copies_and_another_waits_costs_no_byte(slow_place, by):
    job, addresses = swappable(slow_place)
    waiter = slow_place.job("waiter", "--wait-memory=1h")
    with slow_place.client() as client:
        waiter.start(f"alloc({TOO_MUCH_BESIDE}).__str__()")
        until(lambda: client.job("waiter").memory_wait_place == 1, what="it waits")
        slow_place.tandem("pause", "kept")
        until(lambda: in_the_middle(client), what="it copies")
    slow_place.daemon.send_signal(by)

    assert waiter.result() == OUT_OF_MEMORY  # the driver's answer: the pages are still there
    assert job.do(f"swapping.kept({addresses}, {SIZES})") == [True] * 3
    assert job.end() == 0


def test_a_job_that_is_killed_on_the_host_leaves_nothing(place):
    job, _ = swappable(place)
    with place.client() as client:
        place.tandem("pause", "kept")
        until(lambda: status(client).swapped_bytes == ALL, what="its memory is on the host")
        job.kill()
        until(lambda: not client.jobs(), what="it is gone")
    other = place.job("other")
    assert other.do(f"free(alloc({TOO_MUCH_BESIDE}))") == "CUDA_SUCCESS"


@pytest.fixture
def in_files(fresh_place):
    """A daemon with little host memory and a folder for files, and a job that is in one of them."""
    place, folder = fresh_place, fresh_place.folder / "swap"
    folder.mkdir()
    path = place.folder / "config.toml"
    path.write_text(f'[memory]\nhost_limit = "60MiB"\nswap_dir = "{folder}"\n')
    place.start_daemon("--config", str(path))
    kept, addresses = swappable(place)
    place.tandem("pause", "kept")
    other = place.job("other", "--swappable")
    other.do("exec('import swapping', globals())")
    others = other.do(f"swapping.keep({30 * MIB})")
    with place.client() as client:
        until(lambda: status(client).swapped_bytes == ALL, what="the first is on the host")
        place.tandem("pause", "other")
        until(lambda: status(client).filed_bytes == ALL, what="the first is in a file")
        until(lambda: client.job("other").swapped_bytes >= 30 * MIB, what="the other has its room")
        assert client.job("other").filed_bytes == 0
        assert status(client).swapped_bytes == ALL
    return place, kept, addresses, (other, others)


def still_has(other):
    job, addresses = other
    return job.do(f"swapping.kept({addresses}, {(30 * MIB,)})") == [True]


def test_what_the_host_has_no_room_for_comes_back_from_a_file(in_files):
    place, kept, addresses, other = in_files
    assert "50 MiB of its memory on the host is in files" in place.explain("kept")
    assert "50 MiB in files" in place.tandem("ps")
    assert not list((place.folder / "swap").iterdir())  # the files have no names

    place.tandem("resume", "kept")
    assert kept.do(f"swapping.kept({addresses}, {SIZES})") == [True] * 3
    with place.client() as client:
        until(lambda: status(client).filed_bytes == 0, what="the file is not needed any more")
        until(lambda: not files_of(place.daemon.pid), what="nor kept")
    place.tandem("resume", "other")
    assert still_has(other)


def files_of(pid):
    """Return the descriptors of files in swap_dir."""
    found = []
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since the listing
            if f"{os.sep}swap{os.sep}" in os.readlink(fd):
                found.append(fd)
    return found


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGSTOP])
def test_a_job_in_a_file_comes_back_without_its_daemon(in_files, by):
    place, kept, addresses, other = in_files
    place.daemon.send_signal(by)

    assert kept.do(f"swapping.kept({addresses}, {SIZES})") == [True] * 3
    assert still_has(other)


def test_a_job_whose_file_is_lost_hears_of_it_and_no_other_does(in_files):
    place, kept, addresses, other = in_files
    for fd in files_of(place.daemon.pid):
        os.truncate(fd, 0)  # reads as gone, as on a broken disk

    place.tandem("resume", "kept")
    place.tandem("resume", "other")

    answer = kept.do(f"cu.cuMemcpyDtoH(bytearray(4096), {addresses[0]}, 4096)[0].name")
    assert answer != "CUDA_SUCCESS"
    assert still_has(other)
