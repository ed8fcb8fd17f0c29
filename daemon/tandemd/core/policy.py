"""The table of all policies.

A policy only ranks and classifies; turns, drains, holds and owed shares work alike under all of
them (`turns.py`). Policies are stateless: everything they look at is in the group.
"""

from __future__ import annotations

from tandemd.core.errors import UnknownPolicyError
from tandemd.core.policies.curves import curves
from tandemd.core.policies.exclusive import Exclusive
from tandemd.core.policies.fair import Fair
from tandemd.core.policies.fifo import Fifo
from tandemd.core.policies.lanes import ByLanes
from tandemd.core.policies.pair import Pair
from tandemd.core.policies.phases import phases
from tandemd.core.policies.policy import Policy
from tandemd.core.policies.priority import Priority
from tandemd.core.policies.throttle import Throttle
from tandemd.core.policies.token import Token

POLICIES: dict[str, Policy] = {
    "curves": curves(),
    "exclusive": Exclusive(),
    "fair": Fair(),
    "fifo": Fifo(),
    "lanes": ByLanes(),
    "pair": Pair(),
    "phases": phases(),
    "priority": Priority(),
    "throttle": Throttle(),
    "token": Token(),
}


def policy_named(name: str) -> Policy:
    """Look up a policy.

    Raises:
        UnknownPolicyError: no policy has that name; the text lists the known ones.
    """
    try:
        return POLICIES[name]
    except KeyError:
        known = ", ".join(sorted(POLICIES))
        raise UnknownPolicyError(f"no policy is named '{name}'; there are {known}") from None
