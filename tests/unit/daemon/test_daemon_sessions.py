from types import SimpleNamespace

from tandemd.sessions import ENDED_SLACK, Sessions


class Unlooked(dict):
    """A dict that fails the test if anybody iterates over all of it."""

    def keys(self):
        raise AssertionError("looks at every job")

    __iter__ = keys


def sessions_of(scheduler):
    return Sessions(
        scheduler=scheduler,
        channels=None,
        poller=None,
        limits=None,
        gpu_index=None,
        clock_kind=0,
    )


def test_command_lines_of_many_short_jobs_do_not_wait_behind_one_that_is_kept():
    scheduler = SimpleNamespace(jobs={}, finished={0: None})
    sessions = sessions_of(scheduler)
    sessions.commands = {0: "kept"}
    sessions.remember(0)

    for job_id in range(1, 10_000):  # each is forgotten at once
        sessions.commands[job_id] = "short"
        sessions.remember(job_id)
        assert len(sessions.commands) <= ENDED_SLACK + 4

    assert sessions.commands[0] == "kept"


def test_command_lines_go_with_the_jobs_that_are_no_longer_known():
    scheduler = SimpleNamespace(jobs=Unlooked({1: None, 2: None, 3: None}), finished=Unlooked())
    sessions = sessions_of(scheduler)
    sessions.commands = Unlooked({1: "one", 2: "two", 3: "three"})

    def end(job_id):
        scheduler.finished[job_id] = scheduler.jobs.pop(job_id)
        sessions.remember(job_id)
        return [job for job in (1, 2, 3) if job in sessions.commands]

    assert end(1) == [1, 2, 3]  # finished jobs are shown for a while
    assert end(2) == [1, 2, 3]
    del scheduler.finished[1], scheduler.finished[2]
    scheduler.jobs[2] = None  # it came back under its number
    assert end(3) == [2, 3]
