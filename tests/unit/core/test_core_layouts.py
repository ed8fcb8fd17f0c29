"""How an admin writes down a layout for cutting up a GPU."""

import re

import pytest

from tandemd.core.space.layouts import Layout, parse_layout


@pytest.mark.parametrize(
    ("text", "gpu", "profiles"),
    [
        ("0=3g.71gb,2g.35gb", "0", ("3g.71gb", "2g.35gb")),
        ("GPU-8f3c=7g.141gb", "GPU-8f3c", ("7g.141gb",)),
        ("1=1g.18gb+me, 1g.18gb", "1", ("1g.18gb+me", "1g.18gb")),
        ("0=off", "0", ()),
        ("0= OFF ", "0", ()),
    ],
)
def test_a_layout_is_a_gpu_and_its_profiles(text, gpu, profiles):
    layout = parse_layout(text)

    assert layout == Layout(gpu=gpu, profiles=profiles)
    assert parse_layout(layout.text) == layout


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "'' is not a layout; write one such as 0=3g.71gb,2g.35gb, or 0=off"),
        ("3g.71gb", "'3g.71gb' is not a layout"),
        ("=3g.71gb", "is not a layout"),
        ("0=", "is not a layout"),
        ("0=3g.71gb,", "names an empty profile; leave out the comma"),
        ("0=" + ",".join(["1g.18gb"] * 8), "has 8 instances; a gpu has at most 7"),
    ],
)
def test_what_is_no_layout_is_refused_with_the_reason(text, why):
    with pytest.raises(ValueError, match=re.escape(why)):
        parse_layout(text)
