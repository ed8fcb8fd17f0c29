"""What a policy decides. The default gives turns of a quantum to all groups alike."""

from __future__ import annotations

from tandemd.core.model import Group, Options
from tandemd.core.turns.companions import Companions, Pace


class Policy:
    """Ranks groups. Lower is sooner everywhere. Stateless: everything it reads is in the group."""

    description = ""  # one sentence for people
    companions: Companions | None = None  # who may share a turn; None: turns are not shared
    by_lanes = False  # lanes admit jobs to a GPU (`lanes/places.py`)
    by_pieces = False  # a turn ends with an iteration or request, where its end is known

    @property
    def pace(self) -> Pace | None:
        """What decides when companions continue; None: there are none."""
        return None if self.companions is None else self.companions.pace

    @property
    def by_weight(self) -> bool:
        """Tell whether peers get turns by weight, and so by shares; not if ordered otherwise."""
        return type(self).order is Policy.order and not self.by_pieces

    def always_open(self, group: Group) -> bool:
        """Tell whether the group takes no turns: its gate stays open whatever others do."""
        del group
        return False

    def tier(self, group: Group) -> int:
        """Tier of the group; lower goes first, and a tier kept waiting is owed `min_share`."""
        del group
        return 0

    def order(self, group: Group) -> float:
        """Rank within a tier: by default, the group with the least weighted service goes first."""
        return group.virtual_ns

    def look_again_ns(self, group: Group) -> int | None:
        """When time alone moves a waiting group up; None: never. Used only if `by_pieces`."""
        del group
        return None

    def may_cut(self, group: Group) -> bool:
        """Tell whether it may preempt by that, and so needs a timely look. Only if `by_pieces`."""
        del group
        return False

    def quantum_ns(self, options: Options) -> int | None:
        """GPU time after which the turn may pass on; None = never for that reason."""
        return options.quantum_ns

    def preempts(self, challenger: Group, holder: Group) -> bool:
        """Tell whether the challenger may preempt the holder before its quantum or piece ends."""
        del challenger, holder
        return False

    def why_waits(self, group: Group, holder: Group, now_ns: int) -> str:
        """Why the order makes the group wait for the holder; empty: nothing more to say."""
        del group, holder, now_ns
        return ""

    def windowed(self, group: Group) -> bool:
        """Tell whether its open segments are limited, so that a hand-over drains no deep queue."""
        del group
        return True

    def yields_to(self, group: Group, other: Group, *, overlap: bool) -> bool:
        """Tell whether its processes yield to the other's presence; otherwise turns decide.

        The answer may depend only on the two classes and on whether kernels of several processes
        `overlap`.
        """
        del group, other, overlap
        return False
