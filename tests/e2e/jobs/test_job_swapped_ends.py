"""A job whose memory is on the host ends, and its exit handlers get what they want of the GPU."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from running_job import WAITING, stepping, until

from tandem import softgpu

MIB = 1 << 20
ALL = 40 * MIB
STEP_NS = 1_000_000
SOURCE = Path(__file__).with_name("last_words.cpp")
READ = [0, 0, 0]  # no errors, and no wrong byte
FREED = [0, 0, 0, 0]


@pytest.fixture(scope="session")
def last_words(made_once):
    """The program of last_words.cpp."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "csrc"))
    import ninja_build

    def make(path):
        driver = Path(softgpu.__file__).parent / "lib" / "libcuda.so.1"
        include = ["-isystem", str(ninja_build.cuda_include())]
        command = ["g++", "-std=c++17", "-O1", *include, "-o", str(path), str(SOURCE), str(driver)]
        subprocess.run(command, check=True)

    return made_once("last_words", make)


@pytest.fixture
def job(place, last_words):
    """Start a swappable job that ends in the given way."""

    def start(way):
        return place.starting("kept", "--swappable", program=(last_words, way)).ready()

    return start


def is_away(client):
    return client.job("kept").swapped_bytes == ALL


def send_away(place):
    place.tandem("pause", "kept")
    with place.client() as client:
        until(lambda: is_away(client), what="its memory is on the host")


def end(job):
    job.start("")


def await_waiting(place):
    until(lambda: WAITING in place.explain("kept"), what="its exit handler waits")


def test_what_exit_handlers_read_is_there_once_the_job_is_resumed(place, job):
    kept = job("reads")
    send_away(place)
    end(kept)
    await_waiting(place)
    place.tandem("resume", "kept")
    assert kept.result() == READ
    assert kept.end() == 0


def test_what_exit_handlers_of_an_idle_job_read_comes_back_for_them(place, job):
    kept = job("reads")
    with place.client() as client:
        client.set("kept", idle_release="1s")
        until(lambda: is_away(client), what="its memory is on the host")
    end(kept)
    assert kept.result() == READ
    assert kept.end() == 0


@pytest.mark.parametrize("late", [False, True], ids=["before", "while a handler waits"])
def test_what_exit_handlers_read_is_there_without_the_daemon(place, job, late):
    kept = job("reads")
    send_away(place)
    if late:
        end(kept)
        await_waiting(place)
    place.stop_daemon(signal.SIGKILL)
    if not late:
        end(kept)
    assert kept.result() == READ
    assert kept.end() == 0


def test_a_job_that_ends_while_its_memory_goes_keeps_what_is_there_and_gets_the_rest(
    fresh_place, last_words
):
    place = fresh_place
    place.env["TANDEM_SOFTGPU_FAULTS"] = "slow:125@2"  # the second piece takes 0.5 s
    place.start_daemon()
    kept = place.starting("kept", "--swappable", program=(last_words, "reads")).ready()
    with stepping(place.job("clock"), STEP_NS) as step, place.client() as client:
        client.pause("kept")
        until(
            lambda: step() and 0 < client.job("kept").swapped_bytes < ALL,
            what="one piece is away",
        )
        end(kept)
        until(
            lambda: step() and WAITING in " ".join(client.explain("kept").lines),
            what="its exit handler waits",
        )
        client.resume("kept")
    assert kept.result() == READ
    assert kept.end() == 0


@pytest.mark.parametrize(("way", "answers"), [("frees", FREED), ("leaves", [0, 0])])
def test_a_paused_job_that_reads_nothing_more_ends(place, job, way, answers):
    kept = job(way)
    send_away(place)
    end(kept)
    assert kept.result() == answers
    assert kept.end() == 0
    with place.client() as client:
        until(lambda: not client.jobs(), what="it is gone")
    until(lambda: place.used_bytes() == 0, what="its memory is free")
