"""`tandem kubernetes`: the parts that need neither a kubelet nor a daemon."""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from click.testing import CliRunner
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import HealthServicer
from hypothesis import given
from hypothesis import strategies as st

from tandem import _containers
from tandem._results import Gpu
from tandem.cli.kubernetes import kubernetes
from tandem.errors import NotFoundError, StateError, UnavailableError
from tandem.kubernetes import container
from tandem.kubernetes.inventory import Inventory
from tandem.kubernetes.readiness import require_ready
from tandem.kubernetes.slices import preferred, shares, slices_of

UUIDS = [f"GPU-00112233-4455-6677-8899-aabbccddeef{number}" for number in range(4)]
COUNT = 8
ALL = [one for uuid in UUIDS for one in slices_of(uuid, COUNT)]


def gpu(index, *, draining=False, memory_bytes=1 << 30, reserved_bytes=0):
    return Gpu(
        index=index,
        uuid=UUIDS[index],
        product_name="",
        mode="time",
        memory_total_bytes=memory_bytes,
        memory_used_bytes=0,
        sm_count=1,
        busy_ratio=0,
        software=True,
        name=str(index),
        draining=draining,
        memory_reserved_bytes=reserved_bytes,
    )


def test_a_name_says_which_gpu_it_is_of_and_is_short_enough_for_the_kubelet():
    names = slices_of(UUIDS[0], 128)

    assert shares(names) == {UUIDS[0]: 128}
    assert len(set(names)) == 128
    assert max(map(len, names)) <= 63


@given(st.sets(st.sampled_from(ALL), min_size=1), st.data())
def test_what_is_preferred_is_available_has_what_is_required_and_is_of_few_gpus(free, data):
    size = data.draw(st.integers(1, len(free)))
    required = data.draw(st.lists(st.sampled_from(sorted(free)), unique=True, max_size=size))

    chosen = preferred(sorted(free), required, size)

    assert len(chosen) == len(set(chosen)) == size
    assert set(required) <= set(chosen) <= free
    if not required:
        rooms = sorted(shares(free).values(), reverse=True)
        fewest = next(n for n in range(1, len(rooms) + 1) if sum(rooms[:n]) >= size)
        assert len(shares(chosen)) == fewest


@pytest.mark.parametrize(
    ("free", "size", "expected"),
    [
        ((3, 2, 5), 2, {1: 2}),  # the fullest GPU
        ((3, 2, 5), 4, {2: 4}),  # the fullest one with enough room
        ((3, 2, 5), 6, {2: 5, 1: 1}),  # or the emptiest, and the rest where little is left
    ],
)
def test_what_is_left_of_gpus_is_kept_together(free, size, expected):
    available = [one for uuid, n in zip(UUIDS, free, strict=False) for one in slices_of(uuid, n)]

    chosen = shares(preferred(available, [], size))

    assert chosen == {UUIDS[index]: count for index, count in expected.items()}


def test_slices_are_preferred_beside_those_that_are_required():
    required = slices_of(UUIDS[2], 1)

    assert set(shares(preferred(ALL, required, 3))) == {UUIDS[2]}


def healthy(devices):
    return {name: {d.is_healthy for d in devices if name in d.name} for name in UUIDS[:2]}


def test_a_gpu_that_is_gone_stays_and_is_not_given_out():
    said = []
    inventory = Inventory(slices=COUNT, say=said.append)

    async def go():
        await inventory.update([gpu(0), gpu(1)])
        await inventory.update([gpu(0)])

    asyncio.run(go())

    assert healthy(inventory.devices()) == {UUIDS[0]: {True}, UUIDS[1]: {False}}
    assert len(inventory.devices()) == 2 * COUNT
    gone = f"gpu 1 ({UUIDS[1]}): no slice is given out: the daemon no longer knows it"
    assert said[2:] == [gone]


def test_nothing_is_told_that_the_kubelet_knows():
    said = []
    inventory = Inventory(slices=COUNT, say=said.append)

    async def go():
        await inventory.update([gpu(0)])
        lists = inventory.lists()
        first = await anext(lists)
        waiting = asyncio.ensure_future(anext(lists))
        await inventory.update([gpu(0)])
        await asyncio.sleep(0)  # it wakes and waits again
        is_told = waiting.done()
        await inventory.update([gpu(0, draining=True)])
        return first, is_told, await waiting

    first, is_told, last = asyncio.run(go())

    assert (first[0].is_healthy, is_told, last[0].is_healthy) == (True, False, False)
    assert len(said) == 2


def test_a_daemon_that_stays_silent_is_told_of_once():
    said = []
    inventory = Inventory(slices=COUNT, say=said.append)

    async def go():
        await inventory.update([gpu(0)])
        await inventory.lose("no daemon answers")
        await inventory.lose("the daemon does not answer")
        await inventory.update([gpu(0)])

    asyncio.run(go())

    assert said[1:] == ["no slice is given out: no daemon answers", "the daemon is well again"]


def test_a_grant_is_its_part_of_the_memory():
    inventory = Inventory(slices=3, say=lambda _: None)
    asyncio.run(inventory.update([gpu(0, memory_bytes=110, reserved_bytes=10)]))

    parts = [inventory.grants(slices_of(UUIDS[0], n))[0].memory_bytes for n in (1, 2, 3)]

    assert parts == [33, 66, 100]
    with pytest.raises(NotFoundError, match="a slice of gpu 'GPU-1' is asked for"):
        inventory.grants(["GPU-1:0"])


def test_the_files_are_laid_out_for_containers_and_exchanged_only_when_they_differ(shim, tmp_path):
    folder = tmp_path / "node" / "tandem"

    container.lay_out(folder)
    first = (folder / shim.name).stat().st_ino
    container.lay_out(folder)
    unchanged = (folder / shim.name).stat().st_ino
    shim.write_text("newer")
    container.lay_out(folder)

    assert first == unchanged
    assert (folder / shim.name).read_text() == "newer"
    parts = _containers.parts({"TANDEM_RUNTIME_DIR": "/run/tandem"}, uid=0, files=folder)
    assert parts.mounts[0] == (str(folder / shim.name), _containers.LIBRARY)
    assert (folder / "ld.so.preload").read_text() == f"{_containers.LIBRARY}\n"
    assert sorted(path.name for path in folder.iterdir()) == ["ld.so.preload", shim.name]


@pytest.fixture
def health(tmp_path):
    """The health service of a daemon; its socket is `rpc` in the test's folder."""
    servicer = HealthServicer()
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool)
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
        server.add_insecure_port(f"unix:{tmp_path / 'rpc'}")
        server.start()
        yield servicer
        server.stop(None).wait()


def test_a_daemon_that_is_not_well_is_as_good_as_none(health, tmp_path):
    require_ready(tmp_path / "rpc")

    health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)

    with pytest.raises(UnavailableError, match="it is not well, or that no GPU answers"):
        require_ready(tmp_path / "rpc")
    with pytest.raises(UnavailableError, match="does not say whether it is well"):
        require_ready(tmp_path / "nobody")


@pytest.mark.parametrize(
    "words", [("--slices", "0"), ("--slices", "129"), ("--interval", "nan"), ("--kubelet",)]
)
def test_options_that_make_no_sense_are_refused(words):
    done = CliRunner().invoke(kubernetes, ["plugin", *words])

    assert done.exit_code == 2
    assert words[0] in done.output


def test_what_is_not_installed_is_named_with_its_extra(monkeypatch):
    for name in ("kubelet", "plugin", "readiness", "service"):
        monkeypatch.delitem(sys.modules, f"tandem.kubernetes.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "grpc", None)

    done = CliRunner().invoke(kubernetes, ["plugin"])

    assert isinstance(done.exception, StateError)
    assert "pip install 'gpu-tandem[k8s]'" in str(done.exception)
