"""GPU time in proportion to weight, by start-time fair queueing over measured GPU time."""

from __future__ import annotations

from tandemd.core.policies.policy import Policy


class Fair(Policy):
    """The group with the least GPU time divided by its weight goes next, a quantum at a time."""

    description = "gpu time in proportion to the weight of each job's class, in quanta"
