from types import SimpleNamespace

from tandemd.sessions import Sessions


class Unlooked(dict):
    """Nobody is to go through all of it."""

    def keys(self):
        raise AssertionError("looks at every job")

    __iter__ = keys


def test_command_lines_go_with_the_jobs_that_are_no_longer_known():
    scheduler = SimpleNamespace(jobs=Unlooked({1: None, 2: None, 3: None}), finished=Unlooked())
    sessions = Sessions(
        scheduler=scheduler,
        channels=None,
        poller=None,
        limits=None,
        gpu_index=None,
        clock_kind=0,
    )
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
