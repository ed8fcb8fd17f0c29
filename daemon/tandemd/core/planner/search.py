"""A scene that caches its results, for a search through many plans.

Most plans have a part in common with others, and most jobs have neighbours that slow them down
alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tandemd.core.planner.plans import Forecast, Part, Scene, Seat


@dataclass(frozen=True, slots=True)
class Search(Scene):
    """A caching `Scene`. Belongs to one thread; the model must not learn meanwhile."""

    _slowed: dict[object, Iterable[tuple[str, Forecast]]] = field(default_factory=dict)
    _beside: dict[object, float] = field(default_factory=dict)
    _worst: dict[object, Seat] = field(default_factory=dict)

    @staticmethod
    def through(scene: Scene) -> Search:
        """Return a search over the same jobs on the same GPU."""
        return Search(scene.workers, scene.gpu, scene.model)

    def slowed(self, part: Part, by: Sequence[float]) -> Iterable[tuple[str, Forecast]]:
        """Return the scene's result, cached."""
        key = (part.groups, part.members, by)
        found = self._slowed.get(key)
        if found is None:
            # By name: in a dataclass with slots, `super()` without arguments refers to the wrong
            # class.
            found = self._slowed[key] = Scene.slowed(self, part, by)
        return found

    def beside(self, job: Seat, others: tuple[Seat, ...]) -> float:
        """Return the scene's result, cached."""
        key = (job, others)
        found = self._beside.get(key)
        if found is None:
            found = self._beside[key] = Scene.beside(self, job, others)
        return found

    def worst(self, own: Seat, other: Part) -> Seat:
        """Return the scene's result, cached."""
        key = (own, other.groups, other.members)
        found = self._worst.get(key)
        if found is None:
            found = self._worst[key] = Scene.worst(self, own, other)
        return found
