"""The device plugin between a fake kubelet and a real daemon."""

import asyncio
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from fake_kubelet import DEADLINE_S, Kubelet
from gpu_job import JOB

from tandem import _containers, softgpu
from tandem.errors import AccessError, StateError, UnavailableError, UsageError
from tandem.kubernetes.plugin import Settings, serve
from tandem.units import exact_bytes, format_bytes

SLICES = 4


@pytest.fixture
def environ(environ):
    return softgpu.environment(environ, devices=2, profile="mini")


@pytest.fixture
def folder():
    # The names of pytest's own folders are too long for a socket.
    with tempfile.TemporaryDirectory(prefix="kubelet-") as folder:
        yield Path(folder)


@pytest.fixture
def kubelet(folder):
    kubelet = Kubelet(folder)
    kubelet.start()
    yield kubelet
    kubelet.close()


class Running:
    """The plugin, on a thread of its own as in its own process."""

    def __init__(self, settings):
        self.said = []
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=self._run, args=(settings,))
        self._thread.start()

    def _run(self, settings):
        serving = serve(settings, say=self.said.append, until=self._end)
        self._loop.run_until_complete(serving)
        self._loop.close()

    def end(self):
        """End the plugin; return what it said."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()
        return self.said


@pytest.fixture
def cdi():
    return False


@pytest.fixture
def settings(folder, runtime_dir, cdi, monkeypatch):
    monkeypatch.setenv("TANDEM_RUNTIME_DIR", str(runtime_dir))
    return Settings(slices=SLICES, kubelet=folder, cdi=cdi, interval_s=0.02)


@pytest.fixture
def running(kubelet, daemon, settings):
    running = Running(settings)
    yield running
    running.end()


def slices(uuid):
    return [f"{uuid}:{number}" for number in range(SLICES)]


@pytest.fixture
def plugin(running, kubelet):
    plugin = kubelet.registered()
    yield plugin
    plugin.close()


def test_it_registers_and_lists_the_slices(plugin, client, running):
    uuids = [gpu.uuid for gpu in client.gpus()]

    assert (plugin.request.version, plugin.request.resource_name) == ("v1beta1", "tandem.dev/slice")
    assert plugin.options == plugin.request.options
    assert plugin.options.get_preferred_allocation_available
    assert not plugin.options.pre_start_required
    assert plugin.devices() == {one: True for uuid in uuids for one in slices(uuid)}
    assert len(uuids) == 2
    assert running.end()[-1] == "the kubelet knows of tandem.dev/slice"


def test_slices_of_a_gpu_that_drains_are_unhealthy_until_that_is_undone(plugin, client, running):
    first, second = (gpu.uuid for gpu in client.gpus())
    plugin.devices()

    client.drain_gpu("1")
    draining = plugin.devices()
    client.drain_gpu("1", undo=True)
    again = plugin.devices()

    assert {name for name, healthy in draining.items() if healthy} == set(slices(first))
    assert again == dict.fromkeys([*slices(first), *slices(second)], True)
    assert running.said[-2:] == [
        f"gpu 1 ({second}): no slice is given out: it is draining",
        f"gpu 1 ({second}): slices are available",
    ]


def test_all_slices_are_unhealthy_while_no_daemon_answers(plugin, daemon, running, runtime_dir):
    plugin.devices()

    daemon.kill()
    without = plugin.devices()
    daemon.start()
    again = plugin.devices()

    assert set(without.values()) == {False}
    assert set(again.values()) == {True}
    assert without.keys() == again.keys()
    gone, back = running.said[-2:]
    assert gone.startswith(f"no slice is given out: no daemon answers in {runtime_dir}")
    assert back == "the daemon is well again"


def test_slices_of_one_gpu_are_preferred(plugin, client):
    first, second = (gpu.uuid for gpu in client.gpus())
    free = [*slices(first)[:2], *slices(second)[:3]]

    assert plugin.prefer(free, 2) == slices(first)[:2]
    assert plugin.prefer(free, 3) == slices(second)[:3]
    assert plugin.prefer(free, 2, [slices(second)[1]]) == [slices(second)[1], slices(second)[0]]


def test_a_container_becomes_a_job_with_its_part_of_the_memory(plugin, client, environ):
    gpu = client.gpus()[1]

    (started,) = plugin.allocate(slices(gpu.uuid)[:3])
    with container(started, environ) as process:
        shown = int(process.stdout.readline())
        (job,) = client.jobs()

    quota_bytes = gpu.memory_total_bytes * 3 // SLICES
    assert (job.memory_quota_bytes, shown) == (quota_bytes, quota_bytes)
    assert job.gpu == gpu.name


@contextmanager
def container(started, environ):
    """Run a program as the kubelet would start it, except that it has no file system of its own."""
    outside = {mount.container_path: mount.host_path for mount in started.mounts}
    assert all(mount.read_only for mount in started.mounts)
    assert Path(outside["/etc/ld.so.preload"]).read_text().split() == [_containers.LIBRARY]
    env = {name: value for name, value in environ.items() if not name.startswith("TANDEM_R")}
    env |= dict(started.envs)
    assert outside[env["TANDEM_RUNTIME_DIR"]] == env["TANDEM_RUNTIME_DIR"]
    # The loader and NVIDIA's container runtime do this in a container.
    env["LD_PRELOAD"] = outside[_containers.LIBRARY]
    env["CUDA_VISIBLE_DEVICES"] = env.pop("NVIDIA_VISIBLE_DEVICES")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", JOB], env=env, **pipes) as process:
        yield process
        process.communicate()


def test_each_container_is_told_of_its_own_slices(plugin, client, running):
    first, second = client.gpus()

    one, both = plugin.allocate(
        slices(first.uuid)[:1], [*slices(first.uuid)[1:], *slices(second.uuid)[:2]]
    )

    quarter, half = (exact_bytes(first.memory_total_bytes // n) for n in (4, 2))
    assert one.envs["NVIDIA_VISIBLE_DEVICES"] == first.uuid
    assert one.envs["TANDEM_MEMORY"] == quarter
    assert both.envs["NVIDIA_VISIBLE_DEVICES"] == f"{first.uuid},{second.uuid}"
    assert both.envs["TANDEM_MEMORY"] == half  # per GPU, so the smallest share
    assert "CUDA_VISIBLE_DEVICES" not in both.envs
    words = f"a container gets a slice of gpu 0, {format_bytes(first.memory_total_bytes // 4)}"
    assert words in running.said


def test_a_slice_of_an_unknown_gpu_is_refused(plugin, running):
    with pytest.raises(grpc.RpcError, match="a slice of gpu 'GPU-1' is asked for") as refused:
        plugin.allocate(["GPU-1:0"])

    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    assert f"a pod gets nothing: {refused.value.details()}" in running.said


@pytest.mark.parametrize("cdi", [True])
def test_devices_of_cdi_are_named_instead_of_mounts(plugin, client):
    gpu = client.gpus()[0]

    (started,) = plugin.allocate(slices(gpu.uuid)[:1])

    assert dict(started.envs) == {"TANDEM_MEMORY": exact_bytes(gpu.memory_total_bytes // SLICES)}
    assert not started.mounts
    named = [device.name for device in started.cdi_devices]
    assert named == ["tandem.dev/gpu=any", f"nvidia.com/gpu={gpu.uuid}"]


def test_a_kubelet_that_starts_anew_is_told_again(plugin, kubelet, running):
    before = plugin.devices()
    kubelet.stop()
    kubelet.start()

    again = kubelet.registered()

    assert again.devices() == before
    again.close()


@pytest.mark.usefixtures("plugin")
def test_a_kubelet_that_is_away_or_refuses_is_waited_for(kubelet, running):
    kubelet.stop()
    kubelet.refusal = "not now"
    kubelet.start()
    kubelet.refused.wait(DEADLINE_S)
    kubelet.refusal = ""

    kubelet.registered().close()

    *_, refusal, taken = running.end()
    assert refusal.endswith("rejects tandem.dev/slice: not now; waiting for it")
    assert taken == "the kubelet knows of tandem.dev/slice"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.usefixtures("daemon")
def test_a_signal_ends_it_and_its_socket(number, kubelet, environ, folder):
    words = ["kubernetes", "plugin", "--kubelet", str(folder)]
    with subprocess.Popen(
        [sys.executable, "-m", "tandem.cli.__main__", *words],
        env=environ,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        request = kubelet.registered().request
        assert (folder / request.endpoint).is_socket()
        process.send_signal(number)
        _, said = process.communicate()

    assert process.returncode == 0
    assert [path.name for path in folder.iterdir()] == ["kubelet.sock"]
    assert f"tandem: ending by {number.name}" in said.splitlines()


def start(settings):
    asyncio.run(serve(settings, say=lambda _: None, until=asyncio.Event()))


@pytest.mark.usefixtures("kubelet")
def test_without_a_daemon_it_does_not_start(settings):
    with pytest.raises(UnavailableError, match="no daemon answers in"):
        start(settings)


@pytest.mark.usefixtures("daemon")
def test_without_a_kubelet_it_does_not_start(settings, kubelet, folder):
    kubelet.refusal = "this is another version"
    with pytest.raises(StateError, match=r"rejects tandem\.dev/slice: this is another version"):
        start(settings)
    kubelet.stop()
    with pytest.raises(UnavailableError, match=f"no kubelet listens at {folder}/kubelet.sock"):
        start(settings)


@pytest.mark.usefixtures("daemon", "kubelet")
def test_where_it_can_have_no_socket_it_does_not_start(settings, folder):
    (folder / "tandem-slice.sock").mkdir()

    with pytest.raises(AccessError, match="cannot create a socket at"):
        start(settings)
    with pytest.raises(UsageError, match="is too long a path for a socket"):
        start(replace(settings, kubelet=folder / ("x" * 100)))
