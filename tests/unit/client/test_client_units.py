"""Sizes, times and shares as people write them."""

import re
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.errors import UsageError
from tandem.units import (
    Percent,
    exact_bytes,
    exact_duration,
    format_bytes,
    format_duration,
    format_energy,
    format_moment,
    parse_bytes,
    parse_device_bytes,
    parse_duration,
    parse_memory,
    parse_moment,
    parse_percent,
    parse_slo,
)

GIB = 2**30


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        *[(t, 20 * GIB) for t in ("20GiB", "20gib", "20G", "20g", " 20 GiB ")],
        ("1.5GiB", 3 * GIB // 2),
        ("20GB", 20_000_000_000),
        ("8k", 8192),
        ("4096", 4096),
        ("4096B", 4096),
        ("0", 0),
        ("2TiB", 2 * 1024 * GIB),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_sizes(text, size_bytes):
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("12XB", "unknown unit 'XB'"),
        ("GiB", "is not a number with a unit"),
        ("", "is not a number with a unit"),
        ("-1g", "is negative; use bytes"),
        ("1e3", "is not a number with a unit"),
        ("1_000", "is not a number with a unit"),
        ("1.5", "not a whole number"),
        ("9223372036854775808", "is more than"),
        ("9" * 400 + "T", "is more than"),
        ("40%", "unknown unit '%'"),
        ("\u0661g", "is not a number with a unit"),
    ],
)
def test_bad_sizes_say_what_which_value_and_what_is_allowed(text, complaint):
    with pytest.raises(UsageError, match=re.escape(complaint)) as caught:
        parse_bytes(text, what="--memory")

    assert str(caught.value).startswith(f"--memory {text!r} ")
    if "more than" not in complaint:
        assert "use bytes or B, KiB, MiB, GiB" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "duration_ns"),
    [
        ("50ms", 50_000_000),
        ("2s", 2_000_000_000),
        ("1.5h", 5_400_000_000_000),
        ("3min", 180_000_000_000),
        ("250us", 250_000),
        ("7ns", 7),
        ("1d", 86_400_000_000_000),
    ],
)
def test_durations(text, duration_ns):
    assert parse_duration(text) == duration_ns


@pytest.mark.parametrize("text", ["50", "50 M", "ms", "-1s", "0.5ns", "", "1s 2ms"])
def test_a_time_needs_a_number_and_a_known_unit(text):
    with pytest.raises(UsageError, match="use ns, us, ms, s, min, h or d"):
        parse_duration(text)


@pytest.mark.parametrize(("text", "value"), [("40%", 40), ("1", 1), (" 100 % ", 100)])
def test_shares(text, value):
    assert parse_percent(text) == value


@pytest.mark.parametrize("text", ["0%", "101%", "-5%", "4.5%", "%", "", "9999999%", "40%%"])
def test_shares_outside_one_to_a_hundred_are_refused(text):
    with pytest.raises(UsageError, match="from 1% to 100%"):
        parse_percent(text)


def test_memory_is_a_size_or_a_share():
    assert parse_memory("40%") == Percent(value=40)
    assert parse_memory("4g") == 4 * GIB
    with pytest.raises(UsageError, match="or a share: 40%"):
        parse_memory("12XB")


@pytest.mark.parametrize("text", ["20", " 20 ", "20.0", "2097151"])
def test_a_bare_number_of_bytes_that_no_gpu_gives_out_is_refused(text):
    for parse in (parse_memory, parse_device_bytes):
        with pytest.raises(UsageError, match=f"write the unit: {text.strip()}GiB, or"):
            parse(text, what="--memory")


@pytest.mark.parametrize("text", ["20B", "512KiB", "2097152", "0.5m"])
def test_with_a_unit_or_from_two_mebibytes_on_it_is_taken_at_its_word(text):
    assert parse_memory(text) == parse_device_bytes(text) == parse_bytes(text)


def test_nothing_is_no_limit_but_may_be_promised():
    with pytest.raises(UsageError, match="for no limit omit it, or give none"):
        parse_memory("0", what="memory")
    assert parse_device_bytes("0") == 0


def test_an_objective_is_a_p99():
    assert parse_slo("p99=50ms") == 50_000_000


@pytest.mark.parametrize("text", ["50ms", "p50=50ms", "p99=", "p99", "p99=50", "p99=0ms", "=1s"])
def test_other_objectives_are_refused(text):
    with pytest.raises(UsageError):
        parse_slo(text)


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (983 * 2**20, "983 MiB"),
        (GIB - 1, "1 GiB"),
        (40 * GIB, "40 GiB"),
        (5 * 2**50, "5120 TiB"),
        (-GIB, "-1 GiB"),
    ],
)
def test_sizes_read_well(size_bytes, text):
    assert format_bytes(size_bytes) == text


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (0, "0 ns"),
        (999_960, "1 ms"),
        (14_000_000, "14 ms"),
        (1_500_000_000, "1.5 s"),
        (60_000_000_000, "1:00"),
        (192_000_000_000, "3:12"),
        (3_723_000_000_000, "1:02:03"),
        (187_200_000_000_000, "2d4h"),
        (-14_000_000, "-14 ms"),
    ],
)
def test_durations_read_well(duration_ns, text):
    assert format_duration(duration_ns) == text


def test_energy_is_read_in_the_unit_that_suits_it():
    millijoules = (0, 850, 12_000, 3_460_000, 999_960_000, 2_000_000_000_000_000)

    assert [format_energy(each) for each in millijoules] == [
        *("0 mJ", "850 mJ", "12 J", "3.5 kJ", "1 MJ", "2000 GJ")
    ]


@given(st.integers(0, 2**63 - 1), st.integers(0, 40))
def test_what_is_exact_reads_back_as_it_was(number, binary_zeros):
    size_bytes = number >> binary_zeros << binary_zeros

    assert parse_bytes(exact_bytes(size_bytes)) == size_bytes
    assert parse_duration(exact_duration(number)) == number


def test_what_is_exact_has_the_largest_unit_that_keeps_it_whole():
    assert [exact_bytes(size) for size in (0, 1025, 1536 * 2**20, 20 * GIB)] == [
        "0B",
        "1025B",
        "1536MiB",
        "20GiB",
    ]
    assert [exact_duration(time) for time in (0, 1001, 1500 * 10**6, 600 * 10**9)] == [
        "0ns",
        "1001ns",
        "1500ms",
        "600s",
    ]


@given(st.integers(0, 2**63 - 1))
def test_a_printed_size_reads_back_within_its_rounding(size_bytes):
    number, unit = format_bytes(size_bytes).split()

    read_bytes = float(number) * parse_bytes(f"1{unit}")
    assert abs(read_bytes - size_bytes) <= max(1, size_bytes * 0.06)
    assert float(number) < 1024 or unit == "TiB"


@given(st.integers(0, 59_000_000_000))
def test_a_printed_time_reads_back_within_its_rounding(duration_ns):
    number, unit = format_duration(duration_ns).split()

    read_ns = float(number) * parse_duration(f"1{unit}")
    assert abs(read_ns - duration_ns) <= max(1, duration_ns * 0.06)


@given(st.text(max_size=40))
def test_any_text_is_a_value_or_a_usage_error(text):
    of_memory = (parse_bytes, parse_memory, parse_device_bytes)
    for parse in (*of_memory, parse_duration, parse_percent, parse_slo):
        with suppress(UsageError):
            value = parse(text)
            assert isinstance(value, Percent) or value >= 0


@given(st.integers(0, 2**20), st.sampled_from(["", "B", "k", "KiB", "KB", "m", "GiB", "t"]))
def test_sizes_grow_with_their_number(number, unit):
    assert parse_bytes(f"{number}{unit}") < parse_bytes(f"{number + 1}{unit}")


@pytest.mark.parametrize(
    ("text", "seconds_ago"),
    [("2h", 7200), ("7d", 7 * 86_400), ("1970-01-12T13:46:40Z", 0), ("1970-01-12T13:46+00:00", 40)],
)
def test_a_moment_is_so_long_ago_or_a_date(text, seconds_ago):
    assert parse_moment(text, now_ns=10**15) == 10**15 - seconds_ago * 10**9


def test_a_date_without_an_offset_is_in_local_time_and_is_written_so(monkeypatch):
    monkeypatch.setenv("TZ", "UTC-2")  # two hours ahead of UTC
    time.tzset()
    try:
        assert parse_moment("1970-01-02", now_ns=0) == 22 * 3600 * 10**9
        assert format_moment(22 * 3600 * 10**9) == "1970-01-02 00:00:00"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("text", ["", "yesterday", "7", "2026-13-01", "2h30", "-2h", "99999-01-01"])
def test_what_is_no_moment_is_refused(text):
    with pytest.raises(UsageError, match=r"since .* is neither so long ago, such as 2h"):
        parse_moment(text, now_ns=10**18, what="since")


@pytest.mark.parametrize("text", ["30000d", "1969-12-30", "2400-01-01"])
def test_a_moment_that_no_clock_has_is_refused(text):
    with pytest.raises(UsageError, match="is not between 1970 and 2262"):
        parse_moment(text, now_ns=10**18)


def test_a_time_with_an_unknown_unit_is_called_so():
    with pytest.raises(UsageError, match="since '2y' has the unknown unit 'y'"):
        parse_moment("2y", now_ns=10**18, what="since")
