"""The tests that docs/interception.md names for its promises exist."""

import re

NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")


def test_each_promise_of_the_interception_names_tests_that_exist(root, docs):
    _, promises = (docs / "interception.md").read_text().split("## Where each promise is tested")
    rows = [line for line in promises.splitlines() if line.startswith("| ")][1:]

    assert rows
    for row in rows:
        named = NAMED.findall(row)
        assert named, row
        for path, test in named:
            assert f"def {test}(" in (root / "tests" / path).read_text(), f"{path}::{test}"
