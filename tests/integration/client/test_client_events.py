"""What happens to jobs, as the client and the command report it, with a real daemon."""

import json
import select
import signal
import subprocess
import sys
import time

import pytest

from tandem.cli.events import KINDS
from tandemd.core.model import JobState

COMMAND = [sys.executable, "-m", "tandem.cli.__main__", "events", "--follow"]
DEADLINE_S = 30


@pytest.fixture
def following(environ, client, job):
    """Start `tandem events --follow`; return it once it has reported something."""
    begun = []

    def start(*words, command=COMMAND):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        begun.append(subprocess.Popen([*command, *words], env=environ, text=True, **pipes))
        deadline = time.monotonic() + DEADLINE_S
        # Nobody can see when it begins to listen, so make changes until it reports one.
        while not select.select([begun[-1].stdout], [], [], 0.02)[0]:
            assert time.monotonic() < deadline, "it never tells of anything"
            change(client, job)
        return begun[-1]

    yield start
    for process in begun:
        with process:
            process.kill()


def change(client, job):
    client.pause(job)
    client.resume(job)


def test_events_tells_what_happened_each_kind_once(client, tandem, job):
    for _ in range(3):
        change(client, job)

    lines = [line.split(maxsplit=2)[2] for line in tandem("events", "sleeper").stdout.splitlines()]

    assert lines == [
        f"{job:<8}  registered    sleeper",
        f"{job:<8}  paused        sleeper  (3 times so far)",
        f"{job:<8}  detached      sleeper  (3 times so far)",
    ]


def test_events_of_some_kinds_alone_are_told(client, tandem, job):
    change(client, job)

    of_two = tandem("events", "-k", "paused", "--kind", "registered", "--json").stdout
    unknown = tandem("events", "-k", "pausd")

    kinds = [json.loads(line)["kind"] for line in of_two.splitlines()]
    assert kinds == ["registered", "paused"]
    assert unknown.returncode == 2
    assert "'pausd' is not one of 'registered', 'attached'" in unknown.stderr


def test_each_state_that_a_job_comes_to_is_a_kind():
    assert {state.name.lower() for state in JobState} - {"starting"} <= set(KINDS)


def test_events_are_objects_of_json_a_line(client, tandem, job):
    change(client, job)

    events = [json.loads(line) for line in tandem("events", "--json").stdout.splitlines()]

    assert [event["kind"] for event in events] == ["registered", "paused", "detached"]
    assert {event["job"]["state"] for event in events} == {"detached"}  # the current one
    assert sorted(events, key=lambda event: event["time_ns"]) == events


def test_events_of_an_unknown_job_are_not_found(tandem, job):
    assert tandem("events", "nobody").returncode == 3
    assert tandem("events", "--follow", "nobody").returncode == 3


def test_following_tells_of_changes_until_it_is_interrupted(following, client, job):
    process = following("--json", job)

    client.set(job, priority="batch")
    kinds = []
    while "updated" not in kinds:
        kinds.append(json.loads(process.stdout.readline())["kind"])
    process.send_signal(signal.SIGINT)

    out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out, err.strip()) == (130, "", "")
    assert set(kinds) <= {"paused", "detached", "updated"}  # it may begin between two changes


def test_following_ends_quietly_when_its_reader_has_seen_enough(following, client, job):
    words = f"{' '.join(COMMAND)} | head -n 1"
    process = following(command=["bash", "-o", "pipefail", "-c", words])
    deadline = time.monotonic() + DEADLINE_S
    while process.poll() is None:  # it notices when it writes the next one
        assert time.monotonic() < deadline, "it never ends"
        change(client, job)

    out, err = process.communicate()
    assert (process.returncode, out.count("\n"), err) == (0, 1, "")


def test_following_says_that_the_daemon_went_away(following, daemon, job):
    process = following()

    daemon.kill()

    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 7
    assert "no daemon answers in" in err
