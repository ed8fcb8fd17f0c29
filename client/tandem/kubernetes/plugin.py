"""Runs the device plugin from start to end."""

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tandem import _containers
from tandem._async_client import AsyncClient
from tandem._paths import runtime_dir
from tandem.errors import TandemError
from tandem.kubernetes import container
from tandem.kubernetes.inventory import Inventory, Say
from tandem.kubernetes.kubelet import Registration
from tandem.kubernetes.readiness import require_ready
from tandem.kubernetes.service import DevicePlugin, Respond


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of the plugin."""

    slices: int  # for each GPU
    kubelet: Path  # its folder of plugins
    files: Path | None = None  # host folder to copy containers' files to; None: not needed
    cdi: bool = False  # name CDI devices instead of mounts
    interval_s: float = 2.0  # between two checks of the daemon and the kubelet


def run(settings: Settings, *, say: Say) -> None:
    """Serve the kubelet until SIGTERM or Ctrl-C.

    `say` is called with a line for each event.

    Raises:
        AccessError: we may not make a socket in the kubelet's folder.
        StateError: the library for containers is not installed, or the kubelet refuses.
        UnavailableError: the daemon or the kubelet does not answer. Only at the start: if one ends
            later, the plugin waits for it.
        UsageError: the path of the kubelet's folder is too long.
    """
    asyncio.run(_until_signal(settings, say))


async def serve(settings: Settings, *, say: Say, until: asyncio.Event) -> None:
    """Serve the kubelet until the event is set; raises as `run`."""
    inventory = Inventory(slices=settings.slices, say=say)
    plugin = DevicePlugin(inventory, _respond(settings), say=say)
    registration = Registration(settings.kubelet, plugin, say=say)
    socket = runtime_dir(os.environ, uid=os.geteuid()).rpc
    async with AsyncClient() as client:
        await inventory.update(await client.gpus())
        try:
            await registration.renew()
            while not await _is_set_within(until, settings.interval_s):
                await _look(client, socket, inventory)
                await registration.keep()
        finally:
            await registration.end()


async def _until_signal(settings: Settings, say: Say) -> None:
    end = asyncio.Event()

    def stop(number: signal.Signals) -> None:
        say(f"ending by {number.name}")
        end.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
    await serve(settings, say=say, until=end)


def _respond(settings: Settings) -> Respond:
    """The function that makes a container's response; its constant parts are determined once."""
    if settings.cdi:
        return container.cdi_response
    if settings.files is not None:
        container.lay_out(settings.files)
    parts = _containers.parts(os.environ, uid=os.geteuid(), files=settings.files)
    return partial(container.response, parts=parts)


async def _look(client: AsyncClient, socket: Path, inventory: Inventory) -> None:
    try:
        found = await client.gpus()
        await asyncio.to_thread(require_ready, socket)
    except TandemError as exc:
        await inventory.lose(str(exc))
    else:
        await inventory.update(found)


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()
