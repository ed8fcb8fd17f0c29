"""Histograms have fixed bounds, and their counts only grow."""

from tandemd.core.histogram import Histogram


def test_each_duration_is_counted_under_the_first_bound_that_it_does_not_exceed():
    histogram = Histogram((10, 20))

    histogram.add([0, 10, 11, 20, 21, 500])

    assert histogram.counted().counts == (2, 2, 2)
    assert (histogram.counted().count, histogram.counted().sum_ns) == (6, 562)


def test_what_was_counted_before_stays_as_it_was():
    histogram = Histogram((10,))
    histogram.add([1])
    before = histogram.counted()

    histogram.add([2, 30])

    assert (before.counts, before.sum_ns) == ((1, 0), 1)
    assert histogram.counted().counts == (2, 1)
