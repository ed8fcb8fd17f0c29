"""What is drawn as one box: a node, or a chain of nodes that repeats.

A chain becomes one box only if nothing of another lane comes in between: only its first node may
depend on a node elsewhere, and a node elsewhere may depend only on its last.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_LEAST_REPEATS = 3
_LONGEST_PATTERN = 32
_LONG = 4  # a pattern of at least this many boxes is collapsed even if it occurs only twice
_MANY = 24  # if a lane has more boxes, patterns of several boxes are collapsed too


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """Consecutive nodes of a lane, drawn as one."""

    nodes: tuple[int, ...]
    label: str
    parts: tuple[str, ...]  # node names of one repetition, in order
    repeats: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ties:
    """The nodes that depend on a node of another lane, and those that a node there depends on."""

    entered: frozenset[int]
    left: frozenset[int]


def boxes_of(nodes: Sequence[int], names: Sequence[str], ties: Ties) -> list[Box]:
    """The boxes of a lane; `names` are the names of its nodes."""
    single = [
        Box(nodes=(n,), label=name, parts=(name,)) for n, name in zip(nodes, names, strict=True)
    ]
    boxes = list(_collapsed(single, ties, longest=1))
    return list(_collapsed(boxes, ties, longest=_LONGEST_PATTERN)) if len(boxes) > _MANY else boxes


def _collapsed(boxes: Sequence[Box], ties: Ties, *, longest: int) -> Iterator[Box]:
    limits = _limits(boxes, ties)
    at = 0
    while at < len(boxes):
        period, repeats = _best(boxes, at, limits[at], longest)
        end = at + period * repeats
        yield boxes[at] if repeats == 1 else _joined(boxes[at:end], period, repeats)
        at = end


def _limits(boxes: Sequence[Box], ties: Ties) -> list[int]:
    # For each box, where a chain that begins with it has to end.
    limits = [len(boxes)] * len(boxes)
    for at in range(len(boxes) - 2, -1, -1):
        is_cut = boxes[at].nodes[-1] in ties.left or boxes[at + 1].nodes[0] in ties.entered
        limits[at] = at + 1 if is_cut else limits[at + 1]
    return limits


def _best(boxes: Sequence[Box], at: int, limit: int, longest: int) -> tuple[int, int]:
    # The period that covers most boxes from here on, the shortest of equals; 1, 1 if none repeats.
    best = (1, 1)
    for period in range(1, min(longest, (limit - at) // 2) + 1):
        repeats = _repeats(boxes, at, period, limit)
        least = 2 if period >= _LONG else _LEAST_REPEATS
        if repeats >= least and period * repeats > best[0] * best[1]:
            best = (period, repeats)
    return best


def _repeats(boxes: Sequence[Box], at: int, period: int, limit: int) -> int:
    count = 1
    while at + (count + 1) * period <= limit and all(
        boxes[at + i].label == boxes[at + count * period + i].label for i in range(period)
    ):
        count += 1
    return count


def _joined(boxes: Sequence[Box], period: int, repeats: int) -> Box:
    nodes = tuple(node for box in boxes for node in box.nodes)
    one = boxes[:period]
    label = one[0].label if period == 1 else f"({', '.join(box.label for box in one)})"
    parts = tuple(part for box in one for part in box.parts * box.repeats)
    return Box(nodes=nodes, label=f"{repeats} \u00d7 {label}", parts=parts, repeats=repeats)
