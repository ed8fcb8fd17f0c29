"""What a tier is owed: `min_share` of the time it waits, less what it was served.

A token bucket seen from the other side: tokens come at `min_share` per nanosecond while some group
of the tier has work, and are spent by GPU time. A tier that has saved up a whole period's worth is
*overdue*, and stays so until the bucket is empty; it then goes first and yields to nobody. The
bucket is bounded, so a long wait does not buy a long revenge. A tier that wants nothing for a
moment, as between two iterations, keeps its claim; after a whole period without work it loses it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tandemd.core.model import Options


@dataclass(slots=True)
class Debt:
    """The bucket of one tier of one island."""

    owed_ns: float = 0.0
    overdue: bool = False
    _quiet_ns: int = 0  # how long it has wanted nothing

    def account(self, *, waited_ns: int, served_ns: int, wants: bool, options: Options) -> None:
        """Take in one interval, during which the tier wanted the GPU or did not."""
        self._quiet_ns = 0 if wants else self._quiet_ns + waited_ns
        if self._quiet_ns >= options.share_period_ns:
            self.owed_ns, self.overdue = 0.0, False
            return
        if not wants:
            waited_ns = 0
        limit_ns = options.min_share * options.share_period_ns
        owed_ns = self.owed_ns + options.min_share * waited_ns - served_ns
        self.owed_ns = min(max(owed_ns, 0.0), limit_ns)
        if self.owed_ns >= limit_ns > 0:
            self.overdue = True
        elif self.owed_ns <= 0:
            self.overdue = False

    def due_in_ns(self, options: Options) -> int | None:
        """Time until the tier is overdue if it is served nothing; None if that cannot happen."""
        if options.min_share <= 0:
            return None
        if self.overdue:
            return int(self.owed_ns)
        missing_ns = options.min_share * options.share_period_ns - self.owed_ns
        return int(missing_ns / options.min_share) + 1
