"""Which servers of MPS crashed unseen, by the log of its control daemon."""

import pytest

from tandemd.edges.mps_log import ServerLog

NOBODY = 2**22 + 7  # above every pid
START = "[2026-05-31 23:48:21.671 Control 11803] Starting new server {0} for user 1000\n"
READY = "[2026-05-31 23:48:21.748 Control 11107] NEW SERVER {0}: Ready\n"
TOLD = "[2026-05-31 23:48:59.000 Control 11107] Cmd:shutdown_server {0}\n"
ENDED = "[2026-05-31 23:49:00.000 Control 11107] Server {0} exited with status 0\n"
FAILED = (
    "[2026-05-31 23:48:21.900 Server {0}] Failed to start : no device\n"
    "[2026-05-31 23:49:00.000 Control 11107] Server {0} exited with status 1\n"
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "control.log"
    path.write_text(START.format(NOBODY + 9))  # long ago
    return path


def add(file, text):
    with file.open("a") as log:
        log.write(text.format(NOBODY))


def test_one_that_nobody_saw_is_told_once(file):
    log = ServerLog([file])
    assert log.crashed([]) == []

    add(file, START + READY)

    assert log.crashed([]) == [NOBODY]
    assert log.crashed([]) == []


def test_one_that_had_clients_or_ended_well_is_not(file):
    log = ServerLog([file])

    add(file, START)
    assert log.crashed([NOBODY]) == []
    add(file, START + READY + TOLD + ENDED)
    assert log.crashed([]) == []


NEXT = f"[2026-05-31 23:49:01.000 Control 11900] Starting new server {NOBODY + 1} for user "


@pytest.mark.parametrize(
    ("then", "crashed"),
    [
        ("", [NOBODY]),
        (NEXT + "1000\n", [NOBODY]),
        (NEXT + "1001\n", []),  # whose clients have waited for the end of the others
    ],
)
def test_status_0_is_also_that_of_one_that_was_killed(file, then, crashed):
    log = ServerLog([file])

    add(file, START + READY + ENDED + then)

    assert log.crashed([NOBODY + 1]) == crashed


def test_one_that_never_came_up_has_not_crashed_and_it_is_said_why(file):
    log = ServerLog([file])

    add(file, START + FAILED)
    assert log.crashed([]) == []
    assert log.why_not == "no device"

    add(file, START + READY)
    log.crashed([])
    assert log.why_not == ""


def test_half_a_line_is_read_when_it_is_whole(file):
    log = ServerLog([file])

    line = START.format(NOBODY)
    add(file, line[:-20])
    assert log.crashed([]) == []
    add(file, line[-20:])

    assert log.crashed([]) == [NOBODY]


def test_a_log_that_is_begun_anew_or_comes_later_is_read_from_its_beginning(file, tmp_path):
    later = tmp_path / "later"
    log = ServerLog([file, later])
    add(file, READY)
    log.crashed([])

    file.write_text(START.format(NOBODY))
    later.write_text(START.format(NOBODY + 1))

    assert log.crashed([]) == [NOBODY, NOBODY + 1]
