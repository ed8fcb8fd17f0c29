"""What a policy decides. One that does not say otherwise gives turns of a quantum, to all alike."""

from __future__ import annotations

from tandemd.core.model import Group, Options
from tandemd.core.turns.companions import Companions, Pace


class Policy:
    """Ranks groups. Lower is sooner everywhere. Stateless: all that it looks at is in the group."""

    description = ""  # one sentence for people
    companions: Companions | None = None  # who may hold a turn together; None: it is one group's
    by_lanes = False  # jobs come onto a GPU by lanes (`lane_places.py`), and not as they like
    by_pieces = False  # a turn ends with an iteration or a request, where it is known when one does

    @property
    def pace(self) -> Pace | None:
        """What decides when companions go on; None: there are none."""
        return None if self.companions is None else self.companions.pace

    @property
    def by_weight(self) -> bool:
        """Equals have turns by weight, and so as shares say; not if it has an order of its own."""
        return type(self).order is Policy.order and not self.by_pieces

    def always_open(self, group: Group) -> bool:
        """Takes no turns: its gate stays open whatever others do."""
        del group
        return False

    def tier(self, group: Group) -> int:
        """A lower tier goes first; one that is held back by it is owed `min_share`."""
        del group
        return 0

    def order(self, group: Group) -> float:
        """Who of a tier goes next: whoever was served least, by weight."""
        return group.virtual_ns

    def look_again_ns(self, group: Group) -> int | None:
        """When time alone moves a waiting group up; None: it does not. Asked if `by_pieces`."""
        del group
        return None

    def may_cut(self, group: Group) -> bool:
        """It may preempt a holder by that, so that it is to be looked at in time. Likewise."""
        del group
        return False

    def quantum_ns(self, options: Options) -> int | None:
        """GPU time after which the turn may pass on; None = never for that reason."""
        return options.quantum_ns

    def preempts(self, challenger: Group, holder: Group) -> bool:
        """The challenger need not wait for the end of the holder's quantum, or piece of work."""
        del challenger, holder
        return False

    def why_waits(self, group: Group, holder: Group, now_ns: int) -> str:
        """What of the order keeps a group waiting for the holder; empty: nothing that says more."""
        del group, holder, now_ns
        return ""

    def windowed(self, group: Group) -> bool:
        """Its open segments are limited: a hand-over waits for two of them, for no deep queue."""
        del group
        return True

    def yields_to(self, group: Group, other: Group, *, overlap: bool) -> bool:
        """Before a launch its processes look whether the other's are busy; else turns decide.

        By the two classes alone, and by whether kernels of several processes `overlap` there.
        """
        del group, other, overlap
        return False
