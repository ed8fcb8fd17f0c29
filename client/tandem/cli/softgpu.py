"""`tandem softgpu`: run programs on the software GPU, and look at it."""

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from tandem import softgpu as device
from tandem.cli._output import json_option
from tandem.errors import UnavailableError, UsageError
from tandem.units import format_bytes

_Command = TypeVar("_Command", bound=Callable[..., object])

_EXIT_NOT_EXECUTABLE, _EXIT_NOT_FOUND = 126, 127


def device_options(command: _Command) -> _Command:
    """What the device process is started with."""
    for option in reversed(
        [
            click.option("--clock", type=click.Choice(["real", "virtual"]), help="Whose time."),
            click.option("--mode", type=click.Choice(["time", "mps"]), help="Turns, or overlap."),
            click.option("--profile", metavar="NAME", help="h200, a100, rtx4090 or tiny."),
            click.option("--timeline", type=click.Path(path_type=Path), help="Write JSON lines."),
            click.option("--faults", metavar="LIST", help="Such as 'oom@3,hang:vadd@10'."),
            click.option("--devices", type=click.IntRange(1, 8), help="How many GPUs."),
            click.option(
                "--dir", "folder", type=click.Path(path_type=Path), help="Runtime directory."
            ),
        ]
    ):
        command = option(command)
    return command


@click.group()
def softgpu() -> None:
    """Use the software GPU: a test device that implements the CUDA driver API.

    Programs that use the driver API (cuda.bindings, numba-cuda, pynvml) run on it unmodified;
    those that use the runtime API, such as PyTorch, need a GPU.

    \b
    Examples:
      tandem softgpu run -- python program.py
      tandem softgpu run --clock virtual --timeline t.jsonl -- python program.py
      eval "$(tandem softgpu env)"
      tandem softgpu status
    """


@softgpu.command(context_settings={"ignore_unknown_options": True})
@device_options
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
def run(command: tuple[str, ...], **options: str | int | Path | None) -> None:
    """Run COMMAND on the software GPU.

    The options hold for the device process, which the first program in a directory starts; a later
    one joins it as it is.

    \b
    Examples:
      tandem softgpu run -- python -m tandem.demo.probe
      tandem softgpu run --mode mps --profile tiny -- python program.py
    """
    env = device.environment(None, **_absolute(options))
    try:
        os.execvpe(command[0], list(command), env)
    except FileNotFoundError:
        click.echo(f"error: no program {command[0]!r} on the PATH", err=True)
        raise SystemExit(_EXIT_NOT_FOUND) from None
    except OSError as exc:
        click.echo(f"error: {command[0]!r} cannot be executed: {exc.strerror}", err=True)
        raise SystemExit(_EXIT_NOT_EXECUTABLE) from None


@softgpu.command()
@device_options
def env(**options: str | int | Path | None) -> None:
    """Print the variables that put a shell on the software GPU.

    \b
    Examples:
      eval "$(tandem softgpu env --clock virtual)"
    """
    wanted = device.environment(None, **_absolute(options))
    for name in ("LD_LIBRARY_PATH", "PATH", *device.OPTIONS.values()):
        if name in wanted:
            click.echo(f"export {name}={shlex.quote(wanted[name])}")


@softgpu.command()
@json_option
@click.option("--dir", "folder", type=click.Path(path_type=Path), help="Runtime directory.")
def status(as_json: bool, folder: Path | None) -> None:
    """Show the device process: its clock, memory and programs.

    \b
    Examples:
      tandem softgpu status
      tandem softgpu status --json | jq .clients
    """
    from tandem.softgpu._query import device_status

    text = device_status(folder or device.runtime_folder())
    if as_json:
        click.echo(text)
        return
    found = json.loads(text)
    click.echo(f"{found['profile']}, {found['clock']} clock, {found['mode']} mode")
    for gpu in found["devices"]:
        used, total = format_bytes(gpu["used_bytes"]), format_bytes(gpu["total_bytes"])
        busy = f"{gpu['gpu_utilization_ratio'] * 100:.0f}"
        click.echo(f"gpu {gpu['index']}: {gpu['name']}, {used} / {total}, {busy} % busy")
    for client in found["clients"]:
        if client["role"] != "query":
            memory = format_bytes(client["memory_bytes"])
            click.echo(f"  pid {client['pid']} {client['name']}: {memory}")


def _absolute(options: dict[str, str | int | Path | None]) -> dict[str, str | int | Path | None]:
    """Paths as seen from anywhere: the device process has its own working directory.

    Raises:
        UnavailableError: this installation carries no software GPU.
        UsageError: the profile does not exist.
    """
    if not (device.LIBRARIES / "libcuda.so.1").is_file():
        raise UnavailableError(f"'{device.LIBRARIES}' has no libcuda.so.1; run `make build`")
    profile = options.get("profile")
    if profile not in (None, "h200", "a100", "rtx4090", "tiny"):
        raise UsageError(f"no profile {profile!r}; known are h200, a100, rtx4090, tiny")
    return {k: v.absolute() if isinstance(v, Path) else v for k, v in options.items()}
