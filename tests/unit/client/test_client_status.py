"""What `tandem status` says that its caller may have."""

import pytest

from tandem._results import Allowance
from tandem.cli.status import _said

GIB = 1 << 30
NO_LIMIT = Allowance(
    max_class="latency",
    max_class_key=None,
    max_memory_bytes=None,
    max_memory_percent=None,
    max_memory_key=None,
)


@pytest.mark.parametrize(
    ("size_bytes", "percent", "told"),
    [
        (None, None, "no limit of memory"),
        (40 * GIB, None, "40 GiB of each gpu's memory for all jobs (limits.user.ann.max_memory)"),
        (None, 50, "50% of each gpu's memory for all jobs (limits.user.ann.max_memory)"),
        (40 * GIB, 50, "40 GiB or, where that is more, 50% of each gpu's memory for all jobs ("),
    ],
)
def test_class_and_memory_are_said_with_the_keys_that_say_so(size_bytes, percent, told):
    allowance = Allowance(
        max_class="normal",
        max_class_key="limits.default.max_class",
        max_memory_bytes=size_bytes,
        max_memory_percent=percent,
        max_memory_key="limits.user.ann.max_memory" if size_bytes or percent else None,
    )

    assert _said(allowance).startswith(f"classes up to normal (limits.default.max_class), {told}")


def test_who_has_no_limit_hears_that():
    assert _said(NO_LIMIT) == "any class, no limit of memory"
