"""Measures how long the core takes to decide, from outside: the core itself knows no time."""

from __future__ import annotations

from collections.abc import Callable

from tandemd.core.events import Action
from tandemd.core.histogram import DECISIONS_NS, Counted, Histogram
from tandemd.edges.clock import Clock

Question = Callable[[], list[Action]]


class Decisions:
    """Times each call into the core. On the virtual clock calls take 0."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._took = Histogram(DECISIONS_NS)
        self._noted_ns = 0  # time spent on events not yet concluded from

    def note(self, question: Question) -> list[Action]:
        """Answer a question whose conclusions the core draws later."""
        actions, took_ns = self._ask(question)
        self._noted_ns += took_ns
        return actions

    def decide(self, question: Question) -> list[Action]:
        """Answer a question, drawing conclusions from it and from everything noted before."""
        actions, took_ns = self._ask(question)
        self._took.add((self._noted_ns + took_ns,))
        self._noted_ns = 0
        return actions

    def counted(self) -> Counted:
        """Return the histogram of decisions so far."""
        return self._took.counted()

    def _ask(self, question: Question) -> tuple[list[Action], int]:
        begun_ns = self._clock.now_ns()
        actions = question()
        return actions, self._clock.now_ns() - begun_ns
