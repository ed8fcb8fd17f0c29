"""What a rule found about a job."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One sentence each for what is wrong, why it matters and what to do, with figures."""

    rule: str
    since_ns: int  # attach clock: since when it is so, which is before it was found
    what: str
    why: str
    advice: str
    facts: tuple[tuple[str, float], ...] = ()  # name with its unit, value
