"""Finds out at startup which modes work on this machine's GPUs, as `tandem doctor` reports them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

from tandem import _fitness
from tandemd.edges.gpus import Gpu

_OF_INSTANCES = dict.fromkeys(_fitness.CHECKS, "it is an instance of MIG") | {"mig": ""}

log = structlog.get_logger(__name__)


def why_not(
    gpus: Sequence[Gpu], environment: Mapping[str, str], own_pipes: Path
) -> dict[int, Mapping[str, str]]:
    """Map GPU -> mode -> what prevents it; GPUs that NVML does not describe are left out.

    Takes as long as the driver and the MPS control daemon take to answer.
    """
    found: dict[int, Mapping[str, str]] = {gpu.index: _OF_INSTANCES for gpu in gpus if gpu.instance}
    try:
        facts = {one.index: one for one in _fitness.gpus_of_nvml()}
    except (ImportError, OSError) as error:
        log.info("cannot check which modes can work, continuing without", reason=str(error))
        return found
    machine = _fitness.machine_of(environment, own_pipes)
    whole = [gpu.index for gpu in gpus if gpu.instance is None and gpu.index in facts]
    found |= {index: _fitness.objections(facts[index], machine) for index in whole}
    names = {gpu.index: gpu.name for gpu in gpus}
    for index, objections in found.items():
        works = [mode for mode, why in objections.items() if not why]
        log.info("modes that can work", gpu=names[index], modes=" ".join(works) or "none")
    return found
