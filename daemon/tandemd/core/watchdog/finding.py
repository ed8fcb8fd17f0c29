"""What a rule found about a job."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One sentence each for what is the matter, why it matters and what to do; figures beside."""

    rule: str
    since_ns: int  # attach clock: since when it is so, which is before it was found
    what: str
    why: str
    advice: str
    facts: tuple[tuple[str, float], ...] = ()  # name with its unit, value
