"""`tandem softgpu`: run programs on the software GPU, and inspect it."""

import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from tandem import softgpu as device
from tandem.cli._files import refuse_unwritable
from tandem.cli._group import Group
from tandem.cli._softgpu_variables import refuse_wrong_variables
from tandem.cli._timeline_watch import watch
from tandem.cli.softgpu_status import status
from tandem.cli.softgpu_timeline import report, timeline
from tandem.errors import UnavailableError
from tandem.softgpu._device import end_idle, read_settings, running_settings

_Command = TypeVar("_Command", bound=Callable[..., object])

Options = dict[str, str | int | Path | None]
_FLAGS = {"folder": "--dir"}  # any other option has the flag of its name
# Maps each setting to its name in the output of `tandem-softgpu --check`.
_ASKED = {
    "profile": "profile",
    "clock": "clock",
    "mode": "mode",
    "timeline": "timeline",
    "faults": "faults",
    "devices": "device_count",
    "mig": "mig",
    "start_clients": "start_clients",
    "slice_ns": "slice_ns",
    "switch_ns": "switch_ns",
    "linger_ms": "linger_ms",
}
_EXIT_NOT_EXECUTABLE, _EXIT_NOT_FOUND = 126, 127
_WHICH = f"{', '.join(device.PROFILES[:-1])} or {device.PROFILES[-1]}"


def device_options(command: _Command) -> _Command:
    """Add the options with which the device process is started."""
    for option in reversed(
        [
            click.option(
                "--clock", type=click.Choice(["real", "virtual"]), help="Clock of the device."
            ),
            click.option(
                "--mode",
                type=click.Choice(["time", "mps"]),
                help="Whether programs take turns or overlap.",
            ),
            click.option("--profile", metavar="NAME", help=f"Which GPU to imitate: {_WHICH}."),
            click.option(
                "--timeline",
                type=click.Path(path_type=Path),
                help="Write a timeline here, as JSON lines.",
            ),
            click.option(
                "--faults", metavar="LIST", help="Faults to inject, such as 'oom@3,hang:vadd@10'."
            ),
            click.option("--devices", type=click.IntRange(1, 8), help="Number of GPUs."),
            click.option(
                "--mig",
                metavar="LAYOUT",
                help="MIG instances of each device, such as '1g.18gb,3g.71gb'.",
            ),
            click.option(
                "--dir", "folder", type=click.Path(path_type=Path), help="Runtime directory."
            ),
        ]
    ):
        command = option(command)
    return command


@click.group(cls=Group)
def softgpu() -> None:
    """Use the software GPU: a test device that implements the CUDA driver API.

    Programs that use the driver API (cuda.bindings, cuda.core, numba-cuda, pynvml) run on it
    unmodified if their kernels are PTX. Machine code is not executed: with cuda.core, compile to
    "ptx" or with ProgramOptions(lineinfo=True); for numba, `pip uninstall nvidia-nvjitlink`.
    Programs that use the runtime API, such as PyTorch, need a GPU.

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

    The options apply to the device process, which the first program in a directory starts. If one
    lingers there without programs and differs from what is asked for, it is ended first. One with
    programs is joined as it is, and a warning says which options are not in force.

    \b
    Examples:
      tandem softgpu run -- python -m tandem.demo.probe
      tandem softgpu run --mode mps --profile tiny -- python program.py
    """
    wanted = _checked(options)
    env = device.environment(None, **options)
    _make_room(options, wanted, env)
    if wanted["timeline"] and shutil.which(command[0], path=env["PATH"]):
        watch(Path(wanted["timeline"]))
    try:
        os.execvpe(command[0], list(command), env)
    except FileNotFoundError:
        click.echo(f"error: command {command[0]!r} not found", err=True)
        raise SystemExit(_EXIT_NOT_FOUND) from None
    except OSError as exc:
        click.echo(f"error: {command[0]!r} cannot be executed: {exc.strerror}", err=True)
        raise SystemExit(_EXIT_NOT_EXECUTABLE) from None


@softgpu.command()
@device_options
def env(**options: str | int | Path | None) -> None:
    """Print the variables that make a shell use the software GPU.

    As for `tandem softgpu run`, a warning says if programs run on a device with other options.

    \b
    Examples:
      eval "$(tandem softgpu env --clock virtual)"
    """
    settings = _checked(options)
    wanted = device.environment(None, **options)
    _make_room(options, settings, wanted)
    for name in ("LD_LIBRARY_PATH", "PATH", *device.OPTIONS.values()):
        if name in wanted:
            click.echo(f"export {name}={shlex.quote(wanted[name])}")


def _checked(options: Options) -> dict[str, Any]:
    """Check the options; return the settings that a device would be started with.

    Paths become absolute, as the device has a working directory of its own.

    Raises:
        UnavailableError: this installation contains no software GPU.
        UsageError: a value is wrong; the text names the option or variable.
    """
    if not (device.LIBRARIES / "libcuda.so.1").is_file():
        raise UnavailableError(f"'{device.LIBRARIES}' has no libcuda.so.1; run `make build`")
    for name, value in options.items():
        if isinstance(value, Path):
            options[name] = value.absolute()
    flags = {_FLAGS.get(name, f"--{name}"): str(v) for name, v in options.items() if v is not None}
    settings = read_settings(flags, os.environ)
    if settings["timeline"]:
        refuse_unwritable(Path(settings["timeline"]), "timeline")
    refuse_wrong_variables(os.environ)
    return settings


def _make_room(options: Options, wanted: dict[str, Any], env: dict[str, str]) -> None:
    """End a lingering device that differs from what is asked for; warn if a busy one does."""
    folder = device.runtime_folder(env)
    running = running_settings(folder)
    if running is None:
        return  # the program starts one
    asked = [name for name in _ASKED if options.get(name) is not None or env.get(_variable(name))]
    other = [name for name in asked if running.get(_ASKED[name]) != wanted[_ASKED[name]]]
    # A timeline and faults belong to one run: a device that an earlier run used cannot be reused.
    if not other and not {"timeline", "faults"}.intersection(asked):
        return
    if end_idle(folder) or not other:
        return
    differences = [
        f"{name} {running.get(_ASKED[name]) or 'none'}, not {wanted[_ASKED[name]]}"
        for name in other
    ]
    click.echo(
        f"warning: joining the device that runs in '{folder}' ({'; '.join(differences)}); "
        "end its programs first, or use another --dir",
        err=True,
    )


def _variable(name: str) -> str:
    return device.OPTIONS.get(name) or f"TANDEM_SOFTGPU_{name.upper()}"
