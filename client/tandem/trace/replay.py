"""Replays a recording on the software GPU and compares what ran, in which order and how long."""

import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tandem import softgpu
from tandem._signals import ended_by_signals
from tandem.errors import StateError, UnavailableError, UsageError
from tandem.trace.plan import Plan

SPEEDS = ("asap", "recorded")
_LINGER_MS = "50"
# Variables that would trace the players, or hide the device or a part of it from them.
_NOT_OURS = (
    "LD_PRELOAD",
    "TANDEM_TRACE_CALLS",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
)
_NAME_CHARACTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to replay; None means the software GPU's own default."""

    speed: str = "asap"
    clock: str | None = "virtual"
    mode: str | None = "mps"
    profile: str | None = None
    folder: Path | None = None  # join the device that runs there instead of starting one
    timeline: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The recording compared with its replay. Times in nanoseconds."""

    device: str
    processes: int
    threads: int
    recorded_counts: Mapping[str, int]
    replayed_counts: Mapping[str, int]
    recorded_makespan_ns: int
    replayed_makespan_ns: int
    recorded_kernel_ns: int
    replayed_kernel_ns: int | None  # None: we do not have the device's timeline
    untimed_launches: int
    left_out: Mapping[str, int]
    refused: Mapping[str, int]


def replay(plan: Plan, options: Options) -> Result:
    """Play all processes of the plan concurrently, each from virtual time 0.

    Raises:
        StateError: there is nothing to play, or a player fails; the text quotes it.
        UnavailableError: this machine has no compiler, or no software GPU.
    """
    if not plan.processes:
        raise StateError("the recording has no call that could be replayed")
    if not (softgpu.LIBRARIES / "libcuda.so.1").is_file():
        raise UnavailableError(f"'{softgpu.LIBRARIES}' has no libcuda.so.1; run `make build`")
    with ended_by_signals(), _own_folder() as name:
        folder = Path(name)
        symbols = kernel_symbols(plan.kernels)
        image = _compile(symbols, folder)
        timeline = options.timeline or folder / "timeline.jsonl"
        extra = {"speed": options.speed, "image": str(image), "symbols": symbols}
        path = folder / "plan.json"
        path.write_text(json.dumps({**plan.as_dict(), **extra}))
        env = _environment(options, folder, timeline, players=len(plan.processes))
        figures = _play(path, len(plan.processes), env)
        kernel_ns = None if options.folder else _kernel_ns(timeline)
    return _result(plan, options, figures, kernel_ns)


def kernel_symbols(names: Sequence[str]) -> list[str]:
    """A symbol for each kernel: its name, unless that is invalid or taken by the C library."""
    process = ctypes.CDLL(None)
    symbols: list[str] = []
    for number, name in enumerate(names):
        symbol = re.sub(r"\W", "_", name, flags=re.ASCII)[:_NAME_CHARACTERS]
        if symbol != name or hasattr(process, symbol) or symbol in symbols:
            symbol = f"{symbol}_replayed_{number}"
        symbols.append(symbol)
    return symbols


def kernel_source(symbols: Iterable[str]) -> str:
    """Source code of kernels whose only parameter is their cost."""
    return "".join(
        # The asm label allows any name for a kernel, even one that C++ reserves.
        f'extern "C" __global__ void k{number}(double) __asm__("{symbol}");\n'
        f"void k{number}(double) {{}}\n"
        f"TANDEM_KERNEL(k{number}, (double flops), flops, 0)\n"
        for number, symbol in enumerate(symbols)
    )


def _compile(symbols: Sequence[str], folder: Path) -> Path:
    source, image = folder / "kernels.cu", folder / "kernels.so"
    source.write_text(kernel_source(symbols or ["unused"]))
    try:
        softgpu.compile_kernels(source, image)
    except (FileNotFoundError, UsageError) as exc:
        raise UnavailableError(f"the replayed kernels cannot be compiled: {exc}") from exc
    return image


def _environment(options: Options, folder: Path, timeline: Path, *, players: int) -> dict[str, str]:
    base = {name: value for name, value in os.environ.items() if name not in _NOT_OURS}
    if options.folder:
        return softgpu.environment(base, folder=options.folder.absolute())
    base["TANDEM_SOFTGPU_LINGER_MS"] = _LINGER_MS
    return softgpu.environment(
        base,
        folder=folder,
        clock=options.clock,
        mode=options.mode,
        profile=options.profile,
        timeline=timeline.absolute(),
        start_clients=players,
    )


def _play(path: Path, count: int, env: Mapping[str, str]) -> list[dict[str, object]]:
    with ExitStack() as stack:
        players = []
        for index in range(count):
            player = _player(path, index, env)
            stack.callback(_end, player)
            players.append(player)
        outputs = [player.communicate() for player in players]
    for player, (_, errors) in zip(players, outputs, strict=True):
        if player.returncode:
            last = errors.strip().splitlines()[-1:] or [f"exit code {player.returncode}"]
            raise StateError(f"the replay failed: {last[0]}")
    return [json.loads(output) for output, _ in outputs]


def _own_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="tandem-replay-", ignore_cleanup_errors=True)


def _player(path: Path, index: int, env: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tandem.trace.player", str(path), str(index)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _end(player: subprocess.Popen[str]) -> None:
    if player.poll() is None:
        player.kill()
        player.wait()


def _kernel_ns(timeline: Path) -> int:
    rows = map(json.loads, timeline.read_text().splitlines())
    return sum(row["t_end_ns"] - row["t_start_ns"] for row in rows if row["kind"] == "kernel")


def _result(
    plan: Plan, options: Options, figures: list[dict[str, object]], kernel_ns: int | None
) -> Result:
    starts = [int(f["start_ns"]) for f in figures]  # type: ignore[call-overload]
    ends = [int(f["end_ns"]) for f in figures]  # type: ignore[call-overload]
    return Result(
        device=_device(options),
        processes=len(plan.processes),
        threads=sum(len(p.threads) for p in plan.processes),
        recorded_counts=plan.counts,
        replayed_counts=_added(figures, "counts"),
        recorded_makespan_ns=plan.makespan_ns,
        replayed_makespan_ns=max(ends) - min(starts),
        recorded_kernel_ns=plan.kernel_ns,
        replayed_kernel_ns=kernel_ns,
        untimed_launches=plan.untimed_launches,
        left_out=plan.left_out,
        refused=_added(figures, "refused"),
    )


def _device(options: Options) -> str:
    if options.folder:
        return f"the software GPU in '{options.folder}'"
    return " ".join(filter(None, ["software GPU", options.profile, options.clock, "clock"]))


def _added(figures: list[dict[str, object]], name: str) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in figures:
        for key, count in one[name].items():  # type: ignore[attr-defined]
            total[key] = total.get(key, 0) + count
    return total
