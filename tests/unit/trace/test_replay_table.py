"""What `tandem replay` prints besides its figures."""

import pytest

from tandem.cli.replay import show
from tandem.trace.replay import Result


def result(**facts):
    empty = {name: {} for name in ("recorded_counts", "replayed_counts", "left_out", "refused")}
    times = ("recorded_makespan_ns", "replayed_makespan_ns", "recorded_kernel_ns")
    numbers = dict.fromkeys((*times, "replayed_kernel_ns", "untimed_launches"), 0)
    return Result(device="gpu", **{"processes": 1, "threads": 1, **empty, **numbers, **facts})


@pytest.mark.parametrize(("processes", "is_said"), [(1, False), (2, True)])
def test_that_processes_waited_for_turns_when_they_were_recorded_is_said(
    processes, is_said, capsys
):
    show(result(processes=processes))

    assert (
        "processes do not wait for each other's turns here" in capsys.readouterr().out
    ) is is_said
