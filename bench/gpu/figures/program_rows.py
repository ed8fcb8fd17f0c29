"""Joins the results of the part `programs` in each arm into rows. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping

from bench.gpu.figures.workload_rows import (
    BARE,
    DIFFERENT,
    MANAGED,
    NOT_RUN,
    OK,
    Row,
    Run,
    how_it_ran,
    verdict,
)

TOGETHER = "together"
ARMS = (BARE, MANAGED, TOGETHER)
COLUMNS = (*(f"runs_{arm}" for arm in ARMS), "same_results", *ARMS)
BARE_TOO = "error, bare too"
DIGITS = 12  # shown of a digest


def row_of(runs: Mapping[str, Run], *, again: str = "", should_be_managed: bool = True) -> Row:
    """A program's row. Arms that there was no time for may be missing.

    `again` is the digest of a second bare run if digests differ. A program that also fails without
    Tandem still counts as ok.
    """
    how = {arm: _how(runs, arm, should_be_managed=should_be_managed) for arm in ARMS}
    digests = {arm: runs.get(arm, Run()).digest for arm in ARMS}
    same = verdict(digests[BARE], [digests[MANAGED], digests[TOGETHER]], again)
    is_good = {how[MANAGED], how[TOGETHER]} <= {OK, NOT_RUN} and same != DIFFERENT
    return {
        **{f"runs_{arm}": how[arm] for arm in ARMS},
        "same_results": same,
        **{arm: digest[:DIGITS] or NOT_RUN for arm, digest in digests.items()},
        "ok": is_good or how[BARE] != OK,
    }


def _how(runs: Mapping[str, Run], arm: str, *, should_be_managed: bool) -> str:
    run = runs.get(arm)
    if run is None:
        return NOT_RUN
    if arm == BARE:
        return how_it_ran(run)
    bare = runs.get(BARE, Run())
    if run.error and bare.error:
        return BARE_TOO
    return how_it_ran(run, should_be_managed=should_be_managed)
