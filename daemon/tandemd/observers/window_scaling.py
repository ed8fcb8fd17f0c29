"""How a job scales with SMs, from a window of its records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from tandem import _native
from tandemd.core.space.scaling import Curve, curve_of, points_of

MOST_GRIDLESS = 0.5  # of its kernels' time, spent in graphs, whose kernels are not known
MOST_UNTIMED = 0.1  # of its operations on the GPU
MOST_WRONG = 0.25  # of the record's length: the tolerated error of the reconstruction
MOST_CHANGED = 0.25  # of an iteration's length; beyond that the job's work is a different one
MOST_UNUSUAL = 1.5  # times the usual length; a longer iteration waited for something
_BISECTIONS = 12  # gamma to 1 / 4096
_TELLING = 0.02  # the least relative effect that gamma must have on the length


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A part of what a process did; `_native.Window` documents most fields.

    `usual_ns` is the usual length of its iterations; 0 = not known. `pause_ns`, for a process that
    serves requests, is the shortest pause between two of them; 0 = it serves none.
    """

    begin_ns: int
    end_ns: int
    iterations: int
    lost: int
    is_cut: bool
    records: bytes
    usual_ns: int = 0
    pause_ns: int = 0


def recorded_of(window: _native.Window, *, usual_ns: int, pause_ns: int) -> Recorded:
    """Convert a window of the poller."""
    return Recorded(
        begin_ns=window.begin_ns,
        end_ns=window.end_ns,
        iterations=window.iterations,
        lost=window.lost,
        is_cut=window.is_cut,
        records=window.records,
        usual_ns=usual_ns,
        pause_ns=pause_ns,
    )


class UntoldError(Exception):
    """A record does not tell how its job scales; the message says why."""


@dataclass(frozen=True, slots=True)
class _Record:
    window: Recorded
    operations: _native.RecordedOperations
    sms: int

    def scaling(self, sm_counts: list[int], gamma: float = 0.0) -> _native.Scaling:
        found = self.operations.scaling(
            begin_ns=self.window.begin_ns,
            end_ns=self.window.end_ns,
            sms=self.sms,
            sm_counts=sm_counts,
            gamma=gamma,
            pause_ns=self.window.pause_ns,
        )
        if found.is_crowded:
            raise UntoldError("more than 32 of its kernels could run at a time")
        return found

    def slower(self, sms: int, gamma: float) -> float:
        """Return how many times as long an iteration takes on `sms`."""
        own_ns, other_ns = self.scaling([self.sms, sms], gamma).length_ns
        return other_ns / max(1, own_ns)


def tell_scaling(
    window: Recorded,
    sms: int,
    sm_count: int,
    *,
    gamma: float = 0.0,
    probes: Mapping[int, int] = MappingProxyType({}),
) -> Curve:
    """Return the curve from a window that was recorded on `sms` of a GPU's `sm_count` SMs.

    Takes time in proportion to its operations and the points of a curve; for any thread.

    Args:
        window: one or more whole iterations.
        sms: number that its kernels could use.
        sm_count: where the curve ends.
        gamma: how little SMs mean to its kernels, 0..1, used if nothing was probed.
        probes: earlier recorded lengths of an iteration, nanoseconds, by number of SMs. If that for
            `sms` differs from the new one, the others do not count either.

    Raises:
        UntoldError: the window tells no curve; the message says why.
    """
    if not window.iterations or window.lost or window.is_cut:
        raise UntoldError("none of its iterations was recorded completely")
    record = _Record(window, _native.RecordedOperations(window.records), sms)
    own = record.scaling([sms])
    _check(own)
    recorded_ns = round(own.recorded_ns / window.iterations)
    if recorded_ns > MOST_UNUSUAL * window.usual_ns > 0:
        raise UntoldError(
            f"the recorded iteration took {recorded_ns / 1e6:.3g} ms, "
            f"where {window.usual_ns / 1e6:.3g} ms are usual"
        )
    fitted = _probed(record, probes, recorded_ns)
    gamma = gamma if fitted is None else fitted
    points = points_of(sm_count, sms)
    curve = curve_of(
        points,
        record.scaling(list(points), gamma).length_ns,
        recorded_sms=sms,
        recorded_ns=recorded_ns,
        gamma=gamma,
        source="predicted" if fitted is None else "probed",
    )
    return replace(curve, held_sms=sms * own.demand_ns / own.kernel_ns)


def is_same_work(length_ns: int, before_ns: int | None) -> bool:
    """Tell whether iterations on the same SMs may do the same work; `before_ns` None: unknown."""
    return before_ns is None or abs(length_ns - before_ns) <= MOST_CHANGED * before_ns


def _probed(record: _Record, probes: Mapping[int, int], recorded_ns: int) -> float | None:
    """Return the gamma from the farthest probe, the most telling one; None: there is none."""
    others = {other: ns for other, ns in probes.items() if other != record.sms}
    if not others or not recorded_ns or not is_same_work(recorded_ns, probes.get(record.sms)):
        return None
    far = max(others, key=lambda other: max(other / record.sms, record.sms / other))
    return _fitted(lambda gamma: record.slower(far, gamma), others[far] / recorded_ns)


def _check(own: _native.Scaling) -> None:
    """Check that the reconstruction for the record's own number of SMs matches the record."""
    if not own.kernel_ns:
        raise UntoldError("it has no kernels")
    if own.gridless_ns > MOST_GRIDLESS * own.kernel_ns:
        raise UntoldError(
            f"{own.gridless_ns / own.kernel_ns:.0%} of its GPU time is in graphs, whose kernels' "
            "grids are not known"
        )
    if own.untimed > MOST_UNTIMED * own.operations:
        raise UntoldError(f"how long {own.untimed} of its operations take is not known")
    wrong = abs(own.reconstructed_ns - own.recorded_ns) / max(1, own.recorded_ns)
    if wrong > MOST_WRONG:
        raise UntoldError(
            f"an iteration of {own.recorded_ns / 1e6:.3g} ms is reconstructed as taking "
            f"{own.reconstructed_ns / 1e6:.3g} ms"
        )


def _fitted(slower: Callable[[float], float], seen: float) -> float | None:
    """Return the gamma that explains the measured slowdown, or the nearest one.

    None: all give about the same slowdown, so the measurement does not tell.
    """
    low, high = 0.0, 1.0
    if abs(slower(low) / slower(high) - 1) < _TELLING:
        return None
    falls = slower(low) > slower(high)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if (slower(middle) > seen) == falls:
            low = middle
        else:
            high = middle
    return (low + high) / 2
