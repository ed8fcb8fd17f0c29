"""The core formats figures like the client's units do, which it may not import."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.units import format_bytes
from tandemd.core.words import size_of, sizes_apart, span_of

GIB = 1 << 30


@given(st.integers(-(2**63), 2**64))
def test_the_core_and_the_client_tell_a_size_alike(size_bytes):
    assert size_of(size_bytes) == format_bytes(size_bytes)


def test_a_size_near_a_larger_unit_is_told_in_that():
    assert (size_of(GIB - 1), size_of(60 * 1024**2), size_of(20)) == ("1 GiB", "60 MiB", "20 B")


@given(st.integers(0, 2**63), st.integers(0, 2**63))
def test_two_sizes_read_alike_only_if_they_are(one, other):
    told = sizes_apart(one, other)

    assert (told[0] == told[1]) == (one == other)


def test_two_sizes_are_told_no_finer_than_it_takes():
    assert sizes_apart(1025 << 20, 1 << 30) == ("1025 MiB", "1024 MiB")
    assert sizes_apart(5 << 30, 4 << 30) == ("5 GiB", "4 GiB")
    assert sizes_apart((1 << 30) + 1, 1 << 30) == ("1073741825 B", "1073741824 B")
    assert sizes_apart(2**63, 2**63 - 1) == ("9223372036854775808 B", "9223372036854775807 B")


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (0, "0.0 ms"),
        (4_000_000, "4.0 ms"),
        (59_900_000, "60 ms"),
        (2_147_000_000, "2.1 s"),
        (59_000_000_000, "59 s"),
        (660_000_000_000, "11 min"),
        (inf, "without end"),
    ],
)
def test_a_time_is_told_in_two_figures_or_more(duration_ns, text):
    assert span_of(duration_ns) == text
