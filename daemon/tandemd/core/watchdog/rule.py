"""The interface of a rule, and the table of all rules.

A rule is its thresholds and a pure function of what was seen of one job. When a finding begins and
ends is the same for all rules (watchdog.py). The name of a threshold ends with its unit: `_ns`,
`_bytes`, `_ratio` (0..1), `_count`, `_per_s`.
"""

from __future__ import annotations

from typing import Protocol

from tandemd.core.watchdog.finding import Finding
from tandemd.core.watchdog.history import History
from tandemd.core.watchdog.rules.launch_bound import LaunchBound
from tandemd.core.watchdog.rules.leak import Leak
from tandemd.core.watchdog.rules.stall import Stall
from tandemd.core.watchdog.rules.starvation import Starvation
from tandemd.core.watchdog.rules.thrash import Thrash


class Rule(Protocol):
    """A frozen dataclass whose fields are the thresholds, each with its default."""

    @property
    def span_ns(self) -> int:
        """How far back the rule looks at what a job did; it finds nothing in a job at rest.

        0 = it looks at the present state, also of a job at rest.
        """

    def find(self, history: History, *, standing: bool) -> Finding | None:
        """Return what is wrong with the job now; `standing`: it was already last time."""


RULES: dict[str, type[Rule]] = {
    "launch-bound": LaunchBound,
    "leak": Leak,
    "stall": Stall,
    "starvation": Starvation,
    "thrash": Thrash,
}
