"""GPUs on which no job may start: who is refused, who may drain one, and what is remembered."""

import sqlite3
from types import SimpleNamespace

import pytest

from tandem.errors import AccessError
from tandemd.core.model import Options
from tandemd.desk import Desk
from tandemd.edges.gpus import Gpu, GpuIndex
from tandemd.remembered import Remembered
from tandemd.sessions import Sessions

GPUS = [Gpu(index=index, uuid=bytes([index + 1] * 16)) for index in range(2)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.db"


def opened(path):
    return Remembered(path, at_once=True)


@pytest.mark.parametrize(
    ("draining", "names", "refused_on"),
    [
        ({0}, "0", "gpu 0"),
        ({0}, GPUS[0].uuid_text, "gpu 0"),
        ({0}, "1", ""),
        ({0}, "", ""),  # it may take the other GPU
        ({0, 1}, "", "gpus 0, 1"),
        ({0}, "1, 0", "gpu 0"),
        ({0, 1}, "7", ""),  # there is no GPU 7, and a different message says so
        ((), "", ""),
    ],
)
def test_refused_is_who_names_one_or_has_no_other(draining, names, refused_on):
    sessions = Sessions(
        scheduler=SimpleNamespace(options=Options(sm_counts={0: 132, 1: 132})),
        channels=None,
        poller=None,
        limits=None,
        gpu_index=GpuIndex(GPUS),
        clock_kind=0,
    )
    sessions.is_draining = lambda gpu: gpu in draining

    why = sessions._drained(names)

    assert f"{refused_on}: an admin's `tandem drain` lets" in why if refused_on else not why


def test_without_a_gpu_that_is_known_nobody_is_refused():
    sessions = Sessions(
        scheduler=SimpleNamespace(options=Options()),
        channels=None,
        poller=None,
        limits=None,
        gpu_index=GpuIndex(()),
        clock_kind=0,
    )

    assert sessions._drained("") == ""


def test_it_is_kept_by_uuid_until_it_is_undone(path):
    before = opened(path)
    for gpu in GPUS:
        before.drain(gpu, is_on=True)
    before.drain(GPUS[0], is_on=True)
    before.drain(GPUS[1], is_on=False)

    after = opened(path)

    assert [after.is_draining(gpu) for gpu in GPUS] == [True, False]


def test_what_could_not_be_written_is_written_with_the_next(path, monkeypatch):
    monkeypatch.setattr("tandemd.edges.journal.BUSY_S", 0)
    before = opened(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    before.drain(GPUS[0], is_on=True)
    before.drain(GPUS[0], is_on=False)
    other.execute("ROLLBACK")

    before.drain(GPUS[1], is_on=True)

    assert [opened(path).is_draining(gpu) for gpu in GPUS] == [False, True]


def test_without_a_file_it_is_so_until_the_daemon_ends():
    remembered = opened(None)
    remembered.drain(GPUS[0], is_on=True)

    assert remembered.is_draining(GPUS[0])


def test_only_admins_may_say_so():
    desk = Desk(
        loop=SimpleNamespace(scheduler=None),
        sessions=None,
        inventory=SimpleNamespace(refresh=None),
        limits=SimpleNamespace(meet=lambda _: None, is_admin=lambda _: False),
        privacy="open",
        runtime_dir=None,
    )

    with pytest.raises(AccessError, match="uid 7 may not drain a gpu; ask an admin") as refused:
        desk.drain(7, "0", is_on=True)
    assert refused.value.reason == "ADMINS_ONLY"
