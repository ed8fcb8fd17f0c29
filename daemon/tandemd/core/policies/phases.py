"""Like `priority`, but under mps peers run side by side, never two of them in the same phase.

phase_gate.py decides beforehand when a phase may begin; a job inside a phase may run beside others.
"""

from __future__ import annotations

from tandemd.core.policies.curves import SideBySide
from tandemd.core.policies.pair import Pair
from tandemd.core.turns.companions import Pace

DESCRIPTION = "as priority; under mps, equals run side by side, but never in the same phase"


def phases() -> Pair:
    """Share turns as `pair` does, with other companions."""
    companions = SideBySide(Pace.PHASES, why="their phases are kept apart")
    return Pair(companions=companions, description=DESCRIPTION)
