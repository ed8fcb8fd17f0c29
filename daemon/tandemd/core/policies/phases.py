"""As `priority`, but under mps equals run side by side, never two of them in the same phase.

When a phase may begin is decided before (phase_gate.py); whoever is in one may run beside another.
"""

from __future__ import annotations

from tandemd.core.policies.curves import SideBySide
from tandemd.core.policies.pair import Pair
from tandemd.core.turns.companions import Pace

DESCRIPTION = "as priority; under mps, equals run side by side, but never in the same phase"


def phases() -> Pair:
    """Turns are shared as in `pair`, by other companions."""
    companions = SideBySide(Pace.PHASES, why="their phases are kept apart")
    return Pair(companions=companions, description=DESCRIPTION)
