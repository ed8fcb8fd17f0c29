"""Proves, before anybody relies on it, that sets of SMs of two processes are disjoint.

By `python -m tandem._set_probe`, a process of its own: a sick driver may hang or kill it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from tandemd.core.model import Split
from tandemd.edges.gpus import Gpu

PROGRAM = "tandem._set_probe"
TIMEOUT_S = 60.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Proof:
    """Exactly one of both is there."""

    split: Split | None
    problem: str


def prove(gpu: Gpu, environment: Mapping[str, str]) -> Proof:
    """Try it on one GPU; blocks for `TIMEOUT_S` at most, and says in the log what came out.

    `environment`: with what leads programs to MPS.
    """
    proof = _ask({**environment, "CUDA_VISIBLE_DEVICES": gpu.uuid_text})
    if proof.split is None:
        log.warning(
            "sets of SMs are not to be had, continuing in mode mps with static percentages",
            gpu=gpu.index,
            reason=proof.problem,
        )
    else:
        groups, sms = proof.split.groups, proof.split.group_sms
        log.info("sets of SMs are disjoint", gpu=gpu.index, groups=groups, group_sms=sms)
    return proof


def _ask(environment: Mapping[str, str]) -> Proof:
    try:
        done = subprocess.run(
            [sys.executable, "-m", PROGRAM],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=True,
        )
        said = json.loads(done.stdout)
        if said["problem"]:
            return Proof(None, str(said["problem"]))
        return Proof(Split(groups=int(said["groups"]), group_sms=int(said["group_sms"])), "")
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        return Proof(None, f"the probe failed: {error}")
