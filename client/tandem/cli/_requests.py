"""The options with which `tandem run`, and commands that prepare a job, say what it asks for."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tandem._attach import CLASSES, ISOLATIONS, MAX_WAIT_NS, NEVER_IDLE_NS, Request
from tandem.cli._parsed import Aliased, Parsed, Revocable
from tandem.errors import UsageError
from tandem.units import (
    Percent,
    parse_device_bytes,
    parse_duration,
    parse_memory,
    parse_slo,
    parse_sm,
)

_Command = TypeVar("_Command", bound=Callable[..., object])


def parse_wait(text: str, *, what: str = "wait-memory") -> int:
    """Parse a time such as `30s` into nanoseconds, above zero and small enough for the wire."""
    if not text[:1].isdigit():
        hint = ""
        if what.startswith("-"):  # an option, not a key of a file
            hint = "; to leave the time out, write another option or -- "
            hint += f"after {what}: {what} -- {text}"
        raise UsageError(f"{what} {text!r} is not a time such as 30s or 2h{hint}")
    wait_ns = parse_duration(text, what=what)
    if not 0 < wait_ns <= MAX_WAIT_NS:
        raise UsageError(f"{what} {text!r} is not between 1s and {MAX_WAIT_NS // 10**9}s")
    return wait_ns


def parse_idle_release(text: str, *, what: str = "idle-release") -> int:
    """Parse a time such as `60s`, above zero, or `never`, into nanoseconds."""
    if text == "never":
        return NEVER_IDLE_NS
    after_ns = parse_duration(text, what=what)
    if after_ns <= 0:
        raise UsageError(f"{what} {text!r} is not an idle time; give one such as 60s, or never")
    return min(after_ns, NEVER_IDLE_NS)


def parse_gpu(text: str, *, what: str = "gpu") -> str:
    """Refuse a blank name: with it, the driver would show the job no GPU at all."""
    if not text.strip():
        raise UsageError(f"{what} is blank; name a gpu as `tandem gpus` does, or leave it out")
    return text


# In the shim's order (shim/job/settings.cpp): HAMi's limit for one device precedes that for all.
_HAMI_MEMORY = ("CUDA_DEVICE_MEMORY_LIMIT_0", "CUDA_DEVICE_MEMORY_LIMIT")
_HAMI_SM = ("CUDA_DEVICE_SM_LIMIT_0", "CUDA_DEVICE_SM_LIMIT")


def _limit_of_hami(text: str) -> str | None:
    return None if text == "0" else text  # HAMi sets 0 when no limit was requested


def _share_of_hami(text: str) -> str | None:
    if text.removesuffix("%") in ("0", "100"):
        return None  # no limit
    return f"{text}%" if text.isascii() and text.isdigit() else text


_OPTIONS = (
    click.option(
        "-p",
        "--priority",
        type=click.Choice(list(CLASSES)),
        cls=Revocable,
        envvar="TANDEM_PRIORITY",
        help="Class of the job: latency goes before normal, normal before batch.",
    ),
    click.option(
        "-m",
        "--memory",
        type=Parsed("SIZE", parse_memory),
        envvar="TANDEM_MEMORY",
        cls=Aliased,
        aliases=_HAMI_MEMORY,
        understood=_limit_of_hami,
        help="Limit of device memory on each GPU: 20GiB, 8g, 40%; not 0.",
    ),
    click.option(
        "--memory-min",
        type=Parsed("SIZE", parse_device_bytes),
        cls=Revocable,
        envvar="TANDEM_MEMORY_MIN",
        help="Memory promised to the job; it is refused if a GPU cannot keep all promises.",
    ),
    click.option(
        "--persistent",
        type=Parsed("SIZE", parse_device_bytes),
        cls=Revocable,
        envvar="TANDEM_PERSISTENT",
        help="Memory that the job holds for its whole life; for the policy `lanes`.",
    ),
    click.option(
        "--ephemeral",
        type=Parsed("SIZE", parse_device_bytes),
        cls=Revocable,
        envvar="TANDEM_EPHEMERAL",
        help="Most memory that an iteration takes on top of --persistent and returns at its end.",
    ),
    click.option(
        "--wait-memory",
        type=Parsed("[TIMEOUT]", parse_wait),
        is_flag=False,
        flag_value="10min",
        cls=Revocable,
        envvar="TANDEM_WAIT_MEMORY",
        help="Let an allocation wait for memory instead of failing: 30s, 2h; without a value "
        "10min, and then another option or -- has to follow.",
    ),
    click.option(
        "--sm",
        type=Parsed("SHARE", parse_sm),
        envvar="TANDEM_SM",
        cls=Aliased,
        aliases=_HAMI_SM,
        understood=_share_of_hami,
        help="Share (30%) or number (40) of the SMs; in mode `time`, a share of time.",
    ),
    click.option(
        "--isolation",
        type=click.Choice(list(ISOLATIONS)),
        cls=Revocable,
        envvar="TANDEM_ISOLATION",
        help="Isolation the job needs; it is not started if its GPU is in another mode.",
    ),
    click.option(
        "--slo",
        metavar="p99=TIME",
        type=Parsed("p99=TIME", parse_slo),
        cls=Revocable,
        envvar="TANDEM_SLO",
        help="Latency objective of the job's requests: p99=50ms.",
    ),
    click.option(
        "--preemptible/--no-preemptible",
        default=None,
        envvar="TANDEM_PREEMPTIBLE",
        help="Whether the end of a turn may interrupt an iteration of the job. If not, its equals "
        "wait until the iteration ends, for at most scheduler.nonpreemptible_ms; a more urgent "
        "class never waits. By default as configured for its class, or else yes.",
    ),
    click.option(
        "--swappable/--no-swappable",
        default=None,
        envvar="TANDEM_SWAPPABLE",
        help="Whether the job's memory may be moved to the host when others need the room: "
        "between its turns, or while it is paused or idle.",
    ),
    click.option(
        "--idle-release",
        type=Parsed("TIME", parse_idle_release),
        cls=Revocable,
        envvar="TANDEM_IDLE_RELEASE",
        help="Idle time after which a swappable job gives its memory to others until its next "
        "call: 60s; never.",
    ),
    click.option(
        "--checkpoint/--no-checkpoint",
        default=False,
        envvar="TANDEM_CHECKPOINT",
        help="While the job is paused, let the driver (570 or newer) save all of it to the host. "
        "If the driver fails to do so, the job is lost.",
    ),
    click.option(
        "--return-memory/--no-return-memory",
        default=False,
        envvar="TANDEM_RETURN_MEMORY",
        help="Make PyTorch return freed memory (by PYTORCH_CUDA_ALLOC_CONF, unless it is set).",
    ),
    click.option(
        "-G",
        "--group",
        default="",
        envvar="TANDEM_GROUP",
        help="Group of the job, 63 bytes at most; jobs of one group are held together. By "
        "default, the jobs started by one torchrun or one Slurm step form a group.",
    ),
    click.option(
        "-i",
        "--gpu",
        type=Parsed("GPU", parse_gpu),
        help="Index (in PCI order) or UUID of the GPU, or several: 0,1; for a MIG instance, its "
        "UUID or GPU:INSTANCE.",
    ),
)


def request_options(command: _Command) -> _Command:
    """Add the options of a request, except the name."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def name_option(command: _Command) -> _Command:
    """Add the option for the name of the job."""
    option = click.option(
        "-J", "--name", default="", envvar="TANDEM_NAME", help="Name of the job, 63 bytes at most."
    )
    return option(command)


def request_of(options: dict[str, Any]) -> Request:
    """Build the request from the options of a command.

    Raises:
        UsageError: two of them contradict each other.
    """
    if options["checkpoint"] and options["swappable"]:
        raise UsageError(
            "--checkpoint and --swappable are two ways to do the same: give only one; "
            "--swappable moves memory piece by piece, and fails softly"
        )
    if options["idle_release"] and options["checkpoint"]:
        raise UsageError(
            "--idle-release is for jobs whose memory can be moved in parts, and --checkpoint moves "
            "all of it: give --swappable and --no-checkpoint"
        )
    if options["idle_release"] and options["swappable"] is False:
        raise UsageError("--idle-release is for jobs whose memory can be moved: add --swappable")
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
        idle_release_ns=options["idle_release"],
        checkpoint=options["checkpoint"],
        name=options["name"],
        group=options["group"],
    )
