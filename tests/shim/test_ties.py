"""What a process tells the daemon about others that it belongs with."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from shim_daemon import Attached, FakeDaemon, Job
from shim_support import Preload

from tandem import _native

FABRIC = 8  # CUmemAllocationHandleType


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    listening = FakeDaemon(tmp_path)
    yield listening
    listening.close()


def attached(job: Job, daemon: FakeDaemon) -> Attached:
    job.start("launch()")
    taken = daemon.attach()
    assert job.result() == 0
    return taken


def key_told(taken: Attached) -> int:
    """Return the key in the next message."""
    told = _native.decode(taken.connection.recv(4096))
    assert isinstance(told, _native.Shared)
    return told.key


def handle(byte: int) -> str:
    """Return a buffer with an opaque handle in it; the recording driver writes none of its own."""
    return f"(ctypes.c_char * 64)(*bytes([{byte}]) * 64)"


def by_value(byte: int) -> str:
    """Return the handle as a structure that is passed by value."""
    return (
        "type('Handle', (ctypes.Structure,), "
        f"{{'_fields_': [('bytes', ctypes.c_char * 64)]}})(bytes([{byte}]) * 64)"
    )


@pytest.mark.parametrize(
    ("export", "opening"),
    [
        ("cu.cuIpcGetMemHandle({}, 1)", "cu.cuIpcOpenMemHandle_v2(None, {value}, 0)"),
        ("cu.cuIpcGetEventHandle({}, None)", "cu.cuIpcOpenEventHandle(None, {value})"),
        (
            f"cu.cuMemExportToShareableHandle({{}}, 1, {FABRIC}, 0)",
            f"cu.cuMemImportFromShareableHandle(None, {{}}, {FABRIC})",
        ),
        ("cu.cuLogicalEndpointExport({}, 1, 1)", "cu.cuLogicalEndpointImport(2, {}, 1)"),
    ],
    ids=["memory", "event", "fabric", "endpoint"],
)
def test_who_exports_a_handle_and_who_opens_it_say_the_same(
    export: str, opening: str, preload: Preload, daemon: FakeDaemon
) -> None:
    with Job(preload.environment()) as one, Job(preload.environment()) as other:
        exporter, importer = attached(one, daemon), attached(other, daemon)

        assert one.do(export.format(handle(7))) == 0
        assert other.do(opening.format(handle(7), value=by_value(7))) == 0
        told = key_told(exporter)
        assert key_told(importer) == told

        assert other.do(opening.format(handle(8), value=by_value(8))) == 0
        assert key_told(importer) != told


@pytest.mark.parametrize(
    ("export", "importing"),
    [
        (
            "cu.cuMemExportToShareableHandle({}, 1, 1, 0)",
            "cuMemImportFromShareableHandle(None, {}, 1)",
        ),
        (
            "cu.cuMemPoolExportToShareableHandle({}, None, 1, 0)",
            "cuMemPoolImportFromShareableHandle(None, {}, 1, 0)",
        ),
    ],
    ids=["memory", "pool"],
)
def test_a_descriptor_tells_who_exported_it(
    export: str, importing: str, preload: Preload, daemon: FakeDaemon
) -> None:
    with Job(preload.environment()) as job:
        exporter = attached(job, daemon)
        fd = job.do("os.open('/dev/null', os.O_RDONLY)")  # all share an inode, like the driver's
        mine = job.do("os.open('/dev/null', os.O_RDONLY)")

        assert job.do(export.format(f"ctypes.byref(ctypes.c_int({fd}))")) == 0
        job.start(f"in_child(lambda: cu.{importing.format(f'ctypes.c_void_p({mine})')})")
        stranger = daemon.attach()
        assert job.result() == 0
        assert stranger.connection.recv(4096) == b""  # nobody exported that memory

        imported = importing.format(f"ctypes.c_void_p({fd})")
        job.start(f"in_child(lambda: cu.{imported} or sys.stdin.readline() == '')")
        importer = daemon.attach()
        assert key_told(importer) == key_told(exporter)
        job.start("")
        assert job.result() == 0


def test_what_is_shared_is_said_again_to_the_next_daemon(
    preload: Preload, daemon: FakeDaemon
) -> None:
    with Job(preload.environment()) as job:
        first = attached(job, daemon)
        job.do(f"cu.cuIpcGetMemHandle({handle(7)}, 1)")
        job.do(f"cu.cuIpcGetMemHandle({handle(7)}, 1)")
        told = key_told(first)

        first.connection.close()

        assert key_told(daemon.attach()) == told


def test_a_daemon_that_does_not_know_the_message_is_not_sent_it(
    preload: Preload, daemon: FakeDaemon
) -> None:
    daemon.features = 0
    with Job(preload.environment()) as job:
        old = attached(job, daemon)

        job.do(f"cu.cuIpcGetMemHandle({handle(7)}, 1)")
        assert job.end() == ""

        assert old.connection.recv(4096) == b""


def test_a_handle_that_the_driver_refused_is_nobodys(preload: Preload, daemon: FakeDaemon) -> None:
    with Job(preload.environment(FAKE_REFUSES="cuIpcGetMemHandle")) as job:
        taken = attached(job, daemon)

        assert job.do(f"cu.cuIpcGetMemHandle({handle(7)}, 1)") == 1
        assert job.end() == ""

        assert taken.connection.recv(4096) == b""


def test_further_devices_are_told(preload: Preload, daemon: FakeDaemon) -> None:
    with Job(preload.environment()) as job:
        taken = attached(job, daemon)

        job.do("cu.fake_device(3)")
        job.do("launch(stream=77)")

        told = _native.decode(taken.connection.recv(4096))
        assert isinstance(told, _native.Uses)
        assert told.device_uuid == b"\x0a" * 16
