"""What a policy decides, and the table of all policies.

A policy only ranks and classifies; taking turns, draining, holds and owed shares are the same for
all of them (`turns.py`). Policies are stateless: everything they look at is in the group.
"""

from __future__ import annotations

from typing import Protocol

from tandemd.core.errors import UnknownPolicyError
from tandemd.core.model import Group, Options
from tandemd.core.policies.curves import curves
from tandemd.core.policies.exclusive import Exclusive
from tandemd.core.policies.fair import Fair
from tandemd.core.policies.fifo import Fifo
from tandemd.core.policies.lanes import ByLanes
from tandemd.core.policies.pair import Pair
from tandemd.core.policies.phases import phases
from tandemd.core.policies.priority import Priority
from tandemd.core.policies.token import Token
from tandemd.core.turns.companions import Companions


class Policy(Protocol):
    """Ranks groups. Lower is sooner everywhere."""

    @property
    def description(self) -> str:
        """One sentence for people."""

    @property
    def companions(self) -> Companions | None:
        """Who may hold a turn together; None: a turn is one group's alone."""

    @property
    def by_lanes(self) -> bool:
        """Jobs come onto a GPU by lanes (`lane_places.py`), and not as they like."""

    @property
    def by_pieces(self) -> bool:
        """A turn ends with an iteration or a request, where it is known when one does."""

    def always_open(self, group: Group) -> bool:
        """Takes no turns: its gate stays open whatever others do."""

    def tier(self, group: Group) -> int:
        """A lower tier goes first; one that is held back by it is owed `min_share`."""

    def order(self, group: Group) -> float:
        """Who of a tier goes next."""

    def look_again_ns(self, group: Group) -> int | None:
        """When time alone moves a waiting group up; None: it does not."""

    def may_cut(self, group: Group) -> bool:
        """Such a group may preempt a holder by that, so that it is to be looked at in time."""

    def quantum_ns(self, options: Options) -> int | None:
        """GPU time after which the turn may pass on; None = never for that reason."""

    def preempts(self, challenger: Group, holder: Group) -> bool:
        """The challenger need not wait for the end of the holder's quantum, or piece of work."""

    def why_waits(self, group: Group, holder: Group, now_ns: int) -> str:
        """What of the order keeps a group waiting for the holder; empty: nothing that says more."""

    def windowed(self, group: Group) -> bool:
        """Its open segments are limited while it shares the GPU."""

    def yields_to(self, group: Group, other: Group) -> bool:
        """Before a launch its processes look whether the other's are busy."""


POLICIES: dict[str, Policy] = {
    "curves": curves(),
    "exclusive": Exclusive(),
    "fair": Fair(),
    "fifo": Fifo(),
    "lanes": ByLanes(),
    "pair": Pair(),
    "phases": phases(),
    "priority": Priority(),
    "token": Token(),
}


def policy_named(name: str) -> Policy:
    """Look a policy up.

    Raises:
        UnknownPolicyError: there is none of that name; the text lists those there are.
    """
    try:
        return POLICIES[name]
    except KeyError:
        known = ", ".join(sorted(POLICIES))
        raise UnknownPolicyError(f"no policy is named '{name}'; there are {known}") from None
