"""`tandem run`."""

import os
import shlex
from typing import Any

import click

from tandem import _launch
from tandem._attach import CLASSES, ISOLATIONS, MAX_WAIT_NS, Request
from tandem._launch import Launch, Plan
from tandem.cli._launching import Launching
from tandem.cli._parsed import Parsed
from tandem.errors import UsageError
from tandem.units import (
    Percent,
    parse_device_bytes,
    parse_duration,
    parse_memory,
    parse_slo,
    parse_sm,
)


def parse_wait(text: str, *, what: str = "wait-memory") -> int:
    """Nanoseconds from `30s`, more than none and at most what the wire has room for."""
    if not text[:1].isdigit():
        raise UsageError(
            f"{what} {text!r} is no time such as 30s or 2h; to leave the time out, write another "
            f"option or -- after {what}: {what} -- {text}"
        )
    wait_ns = parse_duration(text, what=what)
    if not 0 < wait_ns <= MAX_WAIT_NS:
        raise UsageError(f"{what} {text!r} is not between 1s and {MAX_WAIT_NS // 10**9}s")
    return wait_ns


def parse_variable(text: str, *, what: str = "env") -> tuple[str, str]:
    """Name and value from `NAME=VALUE`."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise UsageError(f"{what} {text!r} is not NAME=VALUE")
    return name, value


@click.command(cls=Launching, context_settings={"allow_interspersed_args": False})
@click.option(
    "-p",
    "--priority",
    type=click.Choice(list(CLASSES)),
    envvar="TANDEM_PRIORITY",
    help="Class of the job: latency before normal before batch.",
)
@click.option(
    "-m",
    "--memory",
    type=Parsed("SIZE", parse_memory),
    envvar="TANDEM_MEMORY",
    help="Limit of device memory on each GPU: 20GiB, 8g, 40%; not 0.",
)
@click.option(
    "--memory-min",
    type=Parsed("SIZE", parse_device_bytes),
    envvar="TANDEM_MEMORY_MIN",
    help="Memory that the job is promised: refused where a GPU cannot keep all promises.",
)
@click.option(
    "--persistent",
    type=Parsed("SIZE", parse_device_bytes),
    envvar="TANDEM_PERSISTENT",
    help="Memory that the job holds as long as it lives, for the policy `lanes`.",
)
@click.option(
    "--ephemeral",
    type=Parsed("SIZE", parse_device_bytes),
    envvar="TANDEM_EPHEMERAL",
    help="Memory that an iteration takes besides, at most, and gives back when it ends.",
)
@click.option(
    "--wait-memory",
    type=Parsed("[TIMEOUT]", parse_wait),
    is_flag=False,
    flag_value="10min",
    envvar="TANDEM_WAIT_MEMORY",
    help="Let an allocation wait for memory instead of failing: 30s, 2h; 10min if not said. "
    "Without a value, write it before another option or --.",
)
@click.option(
    "--sm",
    type=Parsed("SHARE", parse_sm),
    envvar="TANDEM_SM",
    help="Share (30%) or number (40) of the SMs; in mode time a share of time.",
)
@click.option(
    "--isolation",
    type=click.Choice(list(ISOLATIONS)),
    envvar="TANDEM_ISOLATION",
    help="How the job is to be kept apart: not started where its GPU is in another mode.",
)
@click.option(
    "--slo",
    type=Parsed("p99=TIME", parse_slo),
    envvar="TANDEM_SLO",
    help="Objective of the job's requests: p99=50ms.",
)
@click.option(
    "--preemptible/--no-preemptible",
    default=None,
    envvar="TANDEM_PREEMPTIBLE",
    help="Whether the job may be held for others.",
)
@click.option(
    "--swappable/--no-swappable",
    default=None,
    envvar="TANDEM_SWAPPABLE",
    help="Whether the job's memory may be moved to the host while others need the room: between "
    "its turns, while it is paused, or idle.",
)
@click.option(
    "--checkpoint",
    is_flag=True,
    envvar="TANDEM_CHECKPOINT",
    help="While the job is paused have the driver (570 or newer) save it to the host as a whole. "
    "If the driver fails at that, the job is lost.",
)
@click.option(
    "--return-memory",
    is_flag=True,
    envvar="TANDEM_RETURN_MEMORY",
    help="Let PyTorch give freed memory back (PYTORCH_CUDA_ALLOC_CONF, unless it is set).",
)
@click.option(
    "-J", "--name", default="", envvar="TANDEM_NAME", help="Name of the job, 63 bytes at most."
)
@click.option(
    "-G",
    "--group",
    default="",
    envvar="TANDEM_GROUP",
    help="Jobs of one group are held together; 63 bytes at most.",
)
@click.option(
    "-i",
    "--gpu",
    metavar="GPU",
    help="Index (in PCI order) or UUID of the GPU, or several: 0,1; of a MIG instance its UUID or "
    "GPU:INSTANCE.",
)
@click.option(
    "--require", is_flag=True, envvar="TANDEM_REQUIRE", help="Fail instead of running unshared."
)
@click.option(
    "--wait/--no-wait",
    default=True,
    envvar="TANDEM_WAIT",
    help="Whether the job may stand in line for a GPU (policy `lanes`); if not it ends with 75.",
)
@click.option(
    "--env",
    "variables",
    multiple=True,
    type=Parsed("NAME=VALUE", parse_variable),
    help="Set a variable of the job; may be repeated.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print what would be run, with what the daemon would set, and run nothing. "
    "An older daemon notes it as a job that ends at once.",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(**options: Any) -> None:
    """Start COMMAND so that it shares the GPU with other jobs.

    The command replaces this process: its output, signals and exit code are its own. Without a
    daemon it runs unshared, after one line of warning, until there is one; refused by the daemon it
    does so for good, without any limit. Options come before the command.

    \b
    Exit code: that of the command, or
      125  tandem failed       126  the command cannot be executed
      127  command not found    75  no room, with --require or --no-wait

    \b
    Examples:
      tandem run -p latency --slo p99=50ms -J llama -- python serve.py
      tandem run -p batch -m 20GiB -- torchrun --nproc-per-node 2 train.py
      tandem run -m 40% --wait-memory 5min -- python train.py
      tandem run --no-wait --persistent 20GiB --ephemeral 40GiB -- python train.py
      tandem run --dry-run -m 40% -- python train.py
    """
    launch = Launch(
        command=options["command"],
        request=_request(options),
        gpu=options["gpu"],
        extra=dict(options["variables"]),
        require=options["require"],
        return_memory=options["return_memory"],
    )
    try:
        if options["dry_run"]:
            _show(_launch.rehearse(launch, os.environ, uid=os.geteuid()))
            return
        _launch.run(launch, os.environ, uid=os.geteuid())
    except OSError as exc:
        raise _launch.LaunchError(str(exc), exit_code=_launch.EXIT_FAILED) from exc


def _request(options: dict[str, Any]) -> Request:
    if options["checkpoint"] and options["swappable"]:
        raise UsageError(
            "--checkpoint and --swappable are two ways to the same: say one of them; "
            "--swappable moves memory piece by piece, and fails softly"
        )
    memory, sm = options["memory"], options["sm"]
    return Request(
        priority=options["priority"],
        memory_bytes=memory if isinstance(memory, int) else None,
        memory_percent=memory.value if isinstance(memory, Percent) else None,
        memory_min_bytes=options["memory_min"],
        persistent_bytes=options["persistent"],
        ephemeral_bytes=options["ephemeral"],
        wait_memory_ns=options["wait_memory"],
        sm_percent=sm.value if isinstance(sm, Percent) else None,
        sm_count=sm if isinstance(sm, int) else None,
        isolation=options["isolation"],
        slo_p99_ns=options["slo"],
        preemptible=options["preemptible"],
        swappable=options["swappable"],
        checkpoint=options["checkpoint"],
        no_wait=not options["wait"],
        name=options["name"],
        group=options["group"],
    )


def _show(plan: Plan) -> None:
    changed = {k: v for k, v in sorted(plan.environ.items()) if os.environ.get(k) != v}
    words = ["env", *(f"{k}={v}" for k, v in changed.items()), plan.program, *plan.argv[1:]]
    click.echo(shlex.join(words))
