"""Unmodified framework programs that `make gpu` and tests/gpu run with and without Tandem.

    python -m bench.gpu.programs NAME cuda|cpu [ITERATIONS]

prints a digest of what the program computed, which is the same in every run.
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
WHERE_ARE_YOU = signal.SIGUSR1  # makes a program write its threads' stacks to stderr
# Settings for repeatable results and readable errors. Frameworks read them at import; variables
# that are set already stay as they are.
ENVIRONMENT = MappingProxyType(
    {
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "XLA_FLAGS": "--xla_gpu_autotune_level=0",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "JAX_TRACEBACK_FILTERING": "off",  # otherwise a failure's last line is about tracebacks
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # no process pool for a few kernels
    }
)


@dataclass(frozen=True, kw_only=True)
class Made:
    """A program that is ready to compute."""

    step: Callable[[], object]  # one iteration; the work it submitted is done when it returns
    state: Callable[[], list[bytes]]  # the results so far, for a digest
    close: Callable[[], None] = lambda: None


Make = Callable[[str], Made]


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a program is, and what it needs."""

    module: str  # in this folder
    function: str = ""  # of the module, makes the program; empty: it has the program's name
    package: str = "torch"
    needs_gpu: bool = True
    is_driver_api: bool = False  # uses only the driver API, so the software GPU can run it
    iterations: int = 10  # that the digest covers


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
    """Return the function that makes a program; imports its framework.

    Raises:
        ImportError: the framework is not installed.
    """
    source = SOURCES[name]
    module = importlib.import_module(f"{FOLDER}.{source.module}")
    make: Make = getattr(module, source.function or name)
    return make


def digest_of(made: Made) -> str:
    """A digest of what the program has computed."""
    state = hashlib.sha256()
    for part in made.state():
        state.update(part)
    return state.hexdigest()


def compute(make: Make, device: str, iterations: int) -> tuple[Made, str]:
    """Make a program and run so many iterations; return it and the digest of the results."""
    made = make(device)
    for _ in range(iterations):
        made.step()
    return made, digest_of(made)
