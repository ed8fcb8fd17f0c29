"""The driver saves a paused job that asked for it to the host, and restores it unchanged."""

import signal
import subprocess
import sys

from running_job import DEADLINE_S, until

MIB = 1 << 20
SIZES = (10 * MIB, 33 * MIB, 3 * MIB)
ALL = sum(SIZES)
CONTEXT = 8 * MIB
# All memory but another job's word and context, and one more context.
TOO_MUCH_BESIDE = 1000 * MIB


def started(place, *options):
    job = place.job("kept", *options)
    job.do("exec('import swapping', globals())")
    return job, job.do(f"swapping.keep(*{SIZES})")


def test_a_paused_job_is_on_the_host_with_all_that_it_has_and_comes_back_byte_for_byte(place):
    job, addresses = started(place, "--checkpoint")
    other = place.job("other")
    with place.client() as client:
        held = place.used_bytes()
        place.tandem("pause", "kept")
        until(lambda: client.job("kept").state == "swapped", what="it was saved")
        assert held - place.used_bytes() >= ALL + CONTEXT  # its context was released as well
        assert "the driver saved it to the host" in place.explain("kept")
        taken = other.do(f"int(alloc({TOO_MUCH_BESIDE}))")

        place.tandem("resume", "kept")
        job.start(f"swapping.kept({addresses}, {SIZES})")
        told = "it is still on the host: cuCheckpointProcessRestore answers CUDA_ERROR_OUT_OF"
        until(lambda: told in place.explain("kept"), what="it says that it has no room")
        assert other.do(f"free({taken})") == "CUDA_SUCCESS"

        assert job.result() == [True] * 3
        until(lambda: client.job("kept").swapped_bytes == 0, what="it is told")
    assert job.end() == 0


def test_what_a_daemon_saved_comes_back_when_it_ends_and_by_the_next_one(place):
    job, addresses = started(place, "--checkpoint")

    def saved():
        with place.client() as client:
            until(lambda: client.jobs(), what="it is attached")
            (one,) = client.jobs()
            place.tandem("pause", one.name)
            until(lambda: client.job(one.name).state == "swapped", what="it was saved")

    saved()
    place.stop_daemon()
    assert job.do(f"swapping.kept({addresses}, {SIZES})") == [True] * 3

    place.start_daemon()
    saved()
    place.stop_daemon(signal.SIGKILL)  # nobody is left to restore it
    place.start_daemon()
    with place.client() as client:
        until(lambda: client.jobs(), what="it is attached")
        until(lambda: client.job("kept").state == "swapped", what="it is paused as it was")
        place.tandem("resume", "kept")
    assert job.do(f"swapping.kept({addresses}, {SIZES})") == [True] * 3


def test_a_daemon_that_ends_waits_for_the_room_that_what_it_saved_needs(place):
    job, addresses = started(place, "--checkpoint")
    other = place.job("other")
    with place.client() as client:
        place.tandem("pause", "kept")
        until(lambda: client.job("kept").state == "swapped", what="it was saved")
        taken = other.do(f"int(alloc({TOO_MUCH_BESIDE}))")
    log = place.folder / "log"

    place.daemon.send_signal(signal.SIGTERM)
    told = "cuCheckpointProcessRestore answers CUDA_ERROR_OUT_OF_MEMORY"
    until(lambda: told in log.read_text(), what="it had no room")
    assert other.do(f"free({taken})") == "CUDA_SUCCESS"

    assert job.do(f"swapping.kept({addresses}, {SIZES})") == [True] * 3
    assert place.daemon.wait(DEADLINE_S) == 0


def test_two_ways_to_the_host_are_one_too_many(place):
    both = ("--checkpoint", "--swappable")
    tandem = [sys.executable, "-m", "tandem.cli", "run", *both, "--", "true"]
    done = subprocess.run(tandem, env=place.env, capture_output=True, text=True, check=False)

    assert done.returncode == 125
    assert "two ways to do the same" in done.stderr
