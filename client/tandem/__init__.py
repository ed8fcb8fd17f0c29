"""Tandem: several unmodified deep-learning jobs share one NVIDIA GPU.

The marks and the errors are available at once and need no other package. Everything else is loaded
on first use; `Client` and what it returns need `pip install gpu-tandem[client]`.
"""

from typing import TYPE_CHECKING

from tandem._marks import critical, is_managed, phase, slo, step
from tandem.errors import (
    AccessError,
    BugError,
    CapacityError,
    DeadlineError,
    NotFoundError,
    StateError,
    TandemError,
    UnavailableError,
    UsageError,
)

if TYPE_CHECKING:
    from tandem import softgpu as softgpu
    from tandem import torch as torch
    from tandem import waves as waves
    from tandem._async_client import AsyncClient
    from tandem._client import Client
    from tandem._job import job
    from tandem._magic import load_ipython_extension
    from tandem._pressure import MemoryWatch, on_memory_pressure
    from tandem._results import (
        Allowance,
        Explanation,
        Gpu,
        Job,
        JobEvent,
        PastJob,
        Policy,
        Process,
        Status,
        Wait,
    )

__all__ = [
    "AccessError",
    "Allowance",
    "AsyncClient",
    "BugError",
    "CapacityError",
    "Client",
    "DeadlineError",
    "Explanation",
    "Gpu",
    "Job",
    "JobEvent",
    "MemoryWatch",
    "NotFoundError",
    "PastJob",
    "Policy",
    "Process",
    "StateError",
    "Status",
    "TandemError",
    "UnavailableError",
    "UsageError",
    "Wait",
    "critical",
    "is_managed",
    "job",
    "load_ipython_extension",
    "on_memory_pressure",
    "phase",
    "slo",
    "step",
]

_LATER = {
    "Allowance": "tandem._results",
    "AsyncClient": "tandem._async_client",
    "Client": "tandem._client",
    "Explanation": "tandem._results",
    "Gpu": "tandem._results",
    "Job": "tandem._results",
    "JobEvent": "tandem._results",
    "MemoryWatch": "tandem._pressure",
    "PastJob": "tandem._results",
    "Policy": "tandem._results",
    "Process": "tandem._results",
    "Status": "tandem._results",
    "Wait": "tandem._results",
    "job": "tandem._job",
    "load_ipython_extension": "tandem._magic",  # looked for by `%load_ext tandem`
    "on_memory_pressure": "tandem._pressure",
}


_MODULES = ("softgpu", "torch", "waves")  # modules for programs; this torch imports no PyTorch


def __getattr__(name: str) -> object:
    """Load a public name, or a module, on first use."""
    if name not in _LATER and name not in _MODULES:
        raise AttributeError(f"module 'tandem' has no attribute {name!r}")
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"tandem.{name}")
    value: object = getattr(import_module(_LATER[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted({*globals(), *__all__, *_MODULES})
