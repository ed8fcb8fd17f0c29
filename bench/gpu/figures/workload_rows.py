"""Joins the reports of a workload's processes into a row of the part `workloads`. Pure functions.

The part `programs` uses the same words and verdicts.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

BARE, MANAGED, OBSERVED = MODES = ("bare", "managed", "observed")
OK, NOT_RUN = "ok", "not run"
SAME, DIFFERENT, NOT_REPEATABLE = "same", "different", "not repeatable alone"
UNMANAGED = "ran unshared"
COLUMNS = (
    "runs_bare",
    "runs_managed",
    "same_results",
    "bare_per_s",
    "ratio",
    "ratio_observed",
    "noise",
    "start_bare_s",
    "start_managed_s",
)
LINE = 160  # characters kept of an error

Row = dict[str, object]


@dataclass(kw_only=True)
class Run:
    """One process: how far it got, and what it reported."""

    error: str = ""  # its final output; empty: it did everything and ended well
    start_s: float | None = None  # from its start to the end of its first iteration
    digest: str = ""
    is_managed: bool = False
    rates: list[float] = field(default_factory=list)  # iterations per second, by round


def not_run(reason: str, columns: Sequence[str] = COLUMNS) -> Row:
    """The row of a program that was not run."""
    row: Row = dict.fromkeys(columns, NOT_RUN)
    return row | {"runs_bare": f"{NOT_RUN}: {reason}"}


def row_of(
    runs: Mapping[str, Run], *, again: str = "", limit: float | None = None, on_gpu: bool = True
) -> Row:
    """A program's row. `again` is the digest of a second bare run if digests differ.

    `limit` is the lowest ratio accepted on a GPU. A program that also fails without Tandem still
    counts as ok.
    """
    bare, managed, observed = (runs[mode] for mode in (BARE, MANAGED, OBSERVED))
    ratio = ratio_of(managed.rates, bare.rates)
    row: Row = {
        "runs_bare": how_it_ran(bare),
        "runs_managed": how_it_ran(managed, should_be_managed=on_gpu),
        "same_results": verdict(bare.digest, [managed.digest, observed.digest], again),
        "bare_per_s": _figure(statistics.median(bare.rates) if bare.rates else None),
        "ratio": _figure(ratio),
        "ratio_quartiles": quartiles_of(managed.rates, bare.rates),
        "ratio_observed": _figure(ratio_of(observed.rates, bare.rates)),
        "noise": _figure(noise_of(bare.rates)),
        "start_bare_s": _figure(bare.start_s),
        "start_managed_s": _figure(managed.start_s),
    }
    if (how := how_it_ran(observed, should_be_managed=on_gpu)) != OK:
        row["ratio_observed"] = how
    if limit is not None:
        row["limit"] = limit
    row["ok"] = row["runs_bare"] != OK or (
        row["runs_managed"] == OK
        and row["same_results"] in (SAME, NOT_REPEATABLE)
        and (not on_gpu or limit is None or (ratio is not None and ratio >= limit))
    )
    return row


def how_it_ran(run: Run, *, should_be_managed: bool = False) -> str:
    """OK, or what went wrong."""
    if run.error:
        return f"error: {run.error[-LINE:]}"
    return UNMANAGED if should_be_managed and not run.is_managed else OK


def verdict(bare: str, others: Sequence[str], again: str = "") -> str:
    """Compare digests; that of a run that did not get there is empty.

    The first of the others is the run that counts; an observed run is no substitute for it.
    """
    managed, *rest = others
    if not bare or not managed:
        return NOT_RUN
    if managed == bare and all(other in ("", bare) for other in rest):
        return SAME
    return NOT_REPEATABLE if again and again != bare else DIFFERENT


def needs_another(runs: Mapping[str, Run]) -> bool:
    """Whether it takes a second bare run to tell if results differ because of Tandem."""
    others = [runs[mode].digest for mode in (MANAGED, OBSERVED)]
    return verdict(runs[BARE].digest, others) == DIFFERENT


def order_of(number: int, modes: Sequence[str] = MODES) -> list[str]:
    """The order in which a row's processes compute in a round; each is first in turn."""
    first = number % len(modes)
    return [*modes[first:], *modes[:first]]


def beside(rows: Mapping[str, Row]) -> Row:
    """Speeds of variants relative to the same program with plain memory and usual markers.

    Torch's allocators are compared by their bare throughput. Tandem's variants are compared by the
    share of bare throughput that each keeps, which cancels out what the shim costs anyway.
    """
    pairs = {
        "expandable_segments": ("bare_per_s", "allocations"),
        "malloc_async": ("bare_per_s", "allocations"),
        "swappable": ("ratio", "vision"),
        "eager_events": ("ratio", "eager"),
    }
    return {name: _over(rows, name, figure, base) for name, (figure, base) in pairs.items()}


def _over(rows: Mapping[str, Row], name: str, figure: str, base: str) -> float | str:
    values = [rows.get(row, {}).get(figure) for row in (name, base)]
    own, other = (value if isinstance(value, float) else None for value in values)
    return _figure(own / other if own is not None and other else None)


def ratio_of(rates: Sequence[float], bare: Sequence[float]) -> float | None:
    """The median ratio over the rounds, each to the bare round beside it; None if there is none."""
    ratios = _ratios(rates, bare)
    return statistics.median(ratios) if ratios else None


def _ratios(rates: Sequence[float], bare: Sequence[float]) -> list[float]:
    return [rate / base for rate, base in zip(rates, bare, strict=False)]


def quartiles_of(rates: Sequence[float], bare: Sequence[float]) -> list[float]:
    """The quartiles of the rounds' ratios, which show if a limit was missed only by chance."""
    ratios = _ratios(rates, bare)
    if len(ratios) < 2:
        return []
    first, _, third = statistics.quantiles(ratios, n=4, method="inclusive")
    return [float(f"{first:.4g}"), float(f"{third:.4g}")]


def noise_of(rates: Sequence[float]) -> float | None:
    """The range of a process's rounds, relative to their median."""
    if not rates:
        return None
    return (max(rates) - min(rates)) / statistics.median(rates)


def _figure(value: float | None) -> float | str:
    return NOT_RUN if value is None else float(f"{value:.4g}")
