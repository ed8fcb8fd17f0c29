"""`tandem softgpu`: run programs on the software GPU, and look at it."""

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from tandem import softgpu as device
from tandem.cli.softgpu_status import status
from tandem.cli.softgpu_timeline import report, timeline
from tandem.errors import TandemError, UnavailableError, UsageError

_Command = TypeVar("_Command", bound=Callable[..., object])

_PROFILES = ("h200", "a100", "rtx4090", "tiny")
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
            click.option("--mig", metavar="LAYOUT", help="Such as '1g.18gb,3g.71gb', by device."),
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
      tandem softgpu status --watch
      tandem softgpu report t.jsonl run.html
    """


softgpu.add_command(status)
softgpu.add_command(timeline)
softgpu.add_command(report)


@softgpu.command(context_settings={"allow_interspersed_args": False})
@device_options
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
def run(command: tuple[str, ...], **options: str | int | Path | None) -> None:
    """Run COMMAND on the software GPU.

    The options hold for the device process, which the first program in a directory starts. A later
    one joins it as it is, and one line says where that is not what was asked for.

    \b
    Examples:
      tandem softgpu run -- python -m tandem.demo.probe
      tandem softgpu run --mode mps --profile tiny -- python program.py
    """
    env = device.environment(None, **_absolute(options))
    _say_if_joined(options, env)
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


def _say_if_joined(options: dict[str, str | int | Path | None], env: dict[str, str]) -> None:
    """A line where a device runs that is not as asked for."""
    from tandem.softgpu._query import device_status

    wanted = {k: v for k in ("profile", "clock", "mode") if (v := options[k]) is not None}
    if not wanted:
        return
    folder = device.runtime_folder(env)
    try:
        running = json.loads(device_status(folder))
    except (TandemError, ValueError):
        return  # none runs: the program starts one
    other = [f"{k} {running.get(k)}, not {v}" for k, v in wanted.items() if running.get(k) != v]
    if other:
        click.echo(
            f"warning: joining the device that runs in '{folder}' ({'; '.join(other)}); "
            "end its programs first, or use another --dir",
            err=True,
        )


def _absolute(options: dict[str, str | int | Path | None]) -> dict[str, str | int | Path | None]:
    """Paths as seen from anywhere: the device process has its own working directory.

    Raises:
        UnavailableError: this installation carries no software GPU.
        UsageError: the profile does not exist.
    """
    if not (device.LIBRARIES / "libcuda.so.1").is_file():
        raise UnavailableError(f"'{device.LIBRARIES}' has no libcuda.so.1; run `make build`")
    profile = options.get("profile")
    if profile is not None and profile not in _PROFILES:
        from difflib import get_close_matches

        near = get_close_matches(str(profile), _PROFILES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UsageError(f"no profile {profile!r}; known are {', '.join(_PROFILES)}{hint}")
    return {k: v.absolute() if isinstance(v, Path) else v for k, v in options.items()}
