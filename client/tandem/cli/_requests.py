"""The options that say what is asked for a job: of `tandem run`, and of what prepares one."""

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
    """Nanoseconds from `30s`, more than none and at most what the wire has room for."""
    if not text[:1].isdigit():
        hint = ""
        if what.startswith("-"):  # and not in a file
            hint = "; to leave the time out, write another option or -- "
            hint += f"after {what}: {what} -- {text}"
        raise UsageError(f"{what} {text!r} is no time such as 30s or 2h{hint}")
    wait_ns = parse_duration(text, what=what)
    if not 0 < wait_ns <= MAX_WAIT_NS:
        raise UsageError(f"{what} {text!r} is not between 1s and {MAX_WAIT_NS // 10**9}s")
    return wait_ns


def parse_idle_release(text: str, *, what: str = "idle-release") -> int:
    """Nanoseconds from `60s`, more than none; `never` is as many as count for that."""
    if text == "never":
        return NEVER_IDLE_NS
    after_ns = parse_duration(text, what=what)
    if after_ns <= 0:
        raise UsageError(f"{what} {text!r} is no time of idleness; say one such as 60s, or never")
    return min(after_ns, NEVER_IDLE_NS)


def parse_gpu(text: str, *, what: str = "gpu") -> str:
    """A name that is not blank: the driver would show a job no GPU at all."""
    if not text.strip():
        raise UsageError(f"{what} is blank; name a gpu as `tandem gpus` does, or leave it out")
    return text


# As the shim reads them (shim/job/settings.cpp): HAMi has that of a device before that of all.
_HAMI_MEMORY = ("CUDA_DEVICE_MEMORY_LIMIT_0", "CUDA_DEVICE_MEMORY_LIMIT")
_HAMI_SM = ("CUDA_DEVICE_SM_LIMIT_0", "CUDA_DEVICE_SM_LIMIT")


def _limit_of_hami(text: str) -> str | None:
    return None if text == "0" else text  # which it sets for who asks for nothing


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
        help="Class of the job: latency before normal before batch.",
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
        help="Memory that the job is promised: refused where a GPU cannot keep all promises.",
    ),
    click.option(
        "--persistent",
        type=Parsed("SIZE", parse_device_bytes),
        cls=Revocable,
        envvar="TANDEM_PERSISTENT",
        help="Memory that the job holds as long as it lives, for the policy `lanes`.",
    ),
    click.option(
        "--ephemeral",
        type=Parsed("SIZE", parse_device_bytes),
        cls=Revocable,
        envvar="TANDEM_EPHEMERAL",
        help="Memory that an iteration takes besides, at most, and gives back when it ends.",
    ),
    click.option(
        "--wait-memory",
        type=Parsed("[TIMEOUT]", parse_wait),
        is_flag=False,
        flag_value="10min",
        cls=Revocable,
        envvar="TANDEM_WAIT_MEMORY",
        help="Let an allocation wait for memory instead of failing: 30s, 2h; 10min if not "
        "said. Without a value, write it before another option or --.",
    ),
    click.option(
        "--sm",
        type=Parsed("SHARE", parse_sm),
        envvar="TANDEM_SM",
        cls=Aliased,
        aliases=_HAMI_SM,
        understood=_share_of_hami,
        help="Share (30%) or number (40) of the SMs; in mode time a share of time.",
    ),
    click.option(
        "--isolation",
        type=click.Choice(list(ISOLATIONS)),
        cls=Revocable,
        envvar="TANDEM_ISOLATION",
        help="How the job is to be kept apart: not started where its GPU is in another mode.",
    ),
    click.option(
        "--slo",
        metavar="p99=TIME",
        type=Parsed("p99=TIME", parse_slo),
        cls=Revocable,
        envvar="TANDEM_SLO",
        help="Objective of the job's requests: p99=50ms.",
    ),
    click.option(
        "--preemptible/--no-preemptible",
        default=None,
        envvar="TANDEM_PREEMPTIBLE",
        help="Whether the end of its turn may cut an iteration of the job, or its equals wait until"
        " the iteration ends, for as long as scheduler.nonpreemptible_ms allows. Not said: as its "
        "class has it, which is yes unless configured. A more urgent class never waits for it.",
    ),
    click.option(
        "--swappable/--no-swappable",
        default=None,
        envvar="TANDEM_SWAPPABLE",
        help="Whether the job's memory may be moved to the host while others need the room: "
        "between its turns, while it is paused, or idle.",
    ),
    click.option(
        "--idle-release",
        type=Parsed("TIME", parse_idle_release),
        cls=Revocable,
        envvar="TANDEM_IDLE_RELEASE",
        help="Idle for so long a swappable job gives its memory to others until its next call: "
        "60s; never.",
    ),
    click.option(
        "--checkpoint/--no-checkpoint",
        default=False,
        envvar="TANDEM_CHECKPOINT",
        help="While the job is paused have the driver (570 or newer) save it to the host as a "
        "whole. If the driver fails at that, the job is lost.",
    ),
    click.option(
        "--return-memory/--no-return-memory",
        default=False,
        envvar="TANDEM_RETURN_MEMORY",
        help="Let PyTorch give freed memory back (PYTORCH_CUDA_ALLOC_CONF, unless it is set).",
    ),
    click.option(
        "-G",
        "--group",
        default="",
        envvar="TANDEM_GROUP",
        help="Jobs of one group are held together; 63 bytes at most. If not said, what one "
        "torchrun or one step of Slurm started is a group.",
    ),
    click.option(
        "-i",
        "--gpu",
        type=Parsed("GPU", parse_gpu),
        help="Index (in PCI order) or UUID of the GPU, or several: 0,1; of a MIG instance its "
        "UUID or GPU:INSTANCE.",
    ),
)


def request_options(command: _Command) -> _Command:
    """What is asked for, but for the name."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def name_option(command: _Command) -> _Command:
    """The name of the job."""
    option = click.option(
        "-J", "--name", default="", envvar="TANDEM_NAME", help="Name of the job, 63 bytes at most."
    )
    return option(command)


def request_of(options: dict[str, Any]) -> Request:
    """What the options of a command ask for.

    Raises:
        UsageError: two of them contradict each other.
    """
    if options["checkpoint"] and options["swappable"]:
        raise UsageError(
            "--checkpoint and --swappable are two ways to the same: say one of them; "
            "--swappable moves memory piece by piece, and fails softly"
        )
    if options["idle_release"] and options["checkpoint"]:
        raise UsageError(
            "--idle-release is for jobs whose memory can be moved by parts, and --checkpoint moves "
            "all of it: say --swappable and --no-checkpoint"
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
