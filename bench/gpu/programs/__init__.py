"""Unmodified programs of frameworks, as `make gpu` and tests/gpu run them with and without Tandem.

    python -m bench.gpu.programs NAME cuda|cpu [ITERATIONS]

prints a digest of what the program computed; it is the same in every run.
"""

from __future__ import annotations

import hashlib
import importlib
import signal
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

SEED = 20
FOLDER = __name__
WHERE_ARE_YOU = signal.SIGUSR1  # a program then writes the stacks of its threads to stderr
# Repeatable results, and errors in their own words, where a framework has to be told; read when it
# is imported. Unless they are set already.
ENVIRONMENT = MappingProxyType(
    {
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "XLA_FLAGS": "--xla_gpu_autotune_level=0",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "JAX_TRACEBACK_FILTERING": "off",  # or a failure's last line is about tracebacks
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # no pool of processes for a few kernels
    }
)


@dataclass(frozen=True, kw_only=True)
class Made:
    """A program that is ready to compute."""

    step: Callable[[], object]  # one iteration; what it submitted has ended when it returns
    state: Callable[[], list[bytes]]  # what was computed so far, for a digest
    close: Callable[[], None] = lambda: None


Make = Callable[[str], Made]


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a program is, and what it needs."""

    module: str  # in this folder
    function: str = ""  # there, that makes the program; empty: it has the program's name
    package: str = "torch"
    needs_gpu: bool = True
    is_driver_api: bool = False  # what it uses of CUDA, so that the software GPU runs it
    iterations: int = 10  # that a digest is of


_MODELS = Source(module="torch_models", needs_gpu=False)
_PROCESSES = Source(module="torch_processes", needs_gpu=False)
_GRAPHS = Source(module="torch_graphs")

SOURCES = {
    "eager": _MODELS,
    "vision": _MODELS,
    "language": _MODELS,
    "allocations": _MODELS,
    "streams": Source(module="torch_models"),
    "out_of_memory": Source(module="torch_models", iterations=1),
    "graph": _GRAPHS,
    "compiled": _GRAPHS,
    "loader_fork": _PROCESSES,
    "loader_spawn": _PROCESSES,
    "between_processes": _PROCESSES,
    "jax": Source(module="by_jax", function="train", package="jax", needs_gpu=False),
    "cupy": Source(module="by_cupy", function="compute", package="cupy"),
    "triton": Source(module="by_triton", function="compute", package="triton"),
    "numba": Source(
        module="by_numba", function="compute", package="numba.cuda", is_driver_api=True
    ),
    "cuda_bindings": Source(
        module="by_driver",
        function="train",
        package="cuda.bindings",
        is_driver_api=True,
        iterations=3,
    ),
}


def load(name: str) -> Make:
    """The function that makes a program; imports its framework.

    Raises:
        ImportError: the framework is not installed.
    """
    source = SOURCES[name]
    module = importlib.import_module(f"{FOLDER}.{source.module}")
    make: Make = getattr(module, source.function or name)
    return make


def digest_of(made: Made) -> str:
    """A digest of what it has computed."""
    state = hashlib.sha256()
    for part in made.state():
        state.update(part)
    return state.hexdigest()


def compute(make: Make, device: str, iterations: int) -> tuple[Made, str]:
    """A new program after so many iterations, and the digest of what they came to."""
    made = make(device)
    for _ in range(iterations):
        made.step()
    return made, digest_of(made)
