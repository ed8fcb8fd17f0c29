"""How long the core takes to decide: it knows no time, so its loop measures it from outside."""

from __future__ import annotations

from collections.abc import Callable

from tandemd.core.events import Action
from tandemd.core.histogram import DECISIONS_NS, Counted, Histogram
from tandemd.edges.clock import Clock

Question = Callable[[], list[Action]]


class Decisions:
    """Each takes in what happened, and concludes from it. On the virtual clock that takes 0."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._took = Histogram(DECISIONS_NS)
        self._noted_ns = 0  # for events of which the conclusions are still to come

    def note(self, question: Question) -> list[Action]:
        """The answer, where the core concludes later."""
        actions, took_ns = self._ask(question)
        self._noted_ns += took_ns
        return actions

    def decide(self, question: Question) -> list[Action]:
        """The answer with the conclusions from it, and from all that was noted before."""
        actions, took_ns = self._ask(question)
        self._took.add((self._noted_ns + took_ns,))
        self._noted_ns = 0
        return actions

    def counted(self) -> Counted:
        """Those that were made so far."""
        return self._took.counted()

    def _ask(self, question: Question) -> tuple[list[Action], int]:
        begun_ns = self._clock.now_ns()
        actions = question()
        return actions, self._clock.now_ns() - begun_ns
