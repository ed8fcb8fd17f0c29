"""What a tier is owed while it wants the GPU, and between two iterations."""

from tandemd.core.model import Options
from tandemd.core.turns.shares import Debt

OPTIONS = Options(min_share=0.05, share_period_ns=1_000_000_000)
MS = 1_000_000


def after(*intervals):
    """Accounts intervals: time passed, time served, and whether the tier wanted the GPU."""
    debt = Debt()
    for waited_ms, served_ms, wants in intervals:
        debt.account(
            waited_ns=waited_ms * MS, served_ns=served_ms * MS, wants=wants, options=OPTIONS
        )
    return debt


def test_who_wants_nothing_for_a_moment_is_owed_what_it_was():
    debt = after((1000, 0, True), (10, 8, True), (2, 0, False), (0, 0, True))

    assert debt.overdue
    assert debt.owed_ns == 42.5 * MS  # of the 50 it got 8, and half a millisecond was added


def test_nothing_more_is_owed_meanwhile():
    assert after((500, 0, True), (400, 0, False)).owed_ns == 25 * MS


def test_who_wants_nothing_for_a_whole_period_is_owed_nothing():
    debt = after((1000, 0, True), (600, 0, False), (400, 0, False))

    assert (debt.owed_ns, debt.overdue) == (0, False)
    assert after((1000, 0, True), (600, 0, False), (1, 0, True), (600, 0, False)).overdue
