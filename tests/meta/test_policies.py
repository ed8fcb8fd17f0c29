"""The pages that describe the policies, and who takes turns with whom under each, name them all."""

import re

from tandemd.core.policy import POLICIES


def test_the_manual_says_what_each_policy_does(docs):
    text = (docs / "operations.md").read_text()
    section = text.partition("\n## What the policies do\n")[2].partition("\n### ")[0]

    assert set(re.findall(r"^- \*\*(\w+)\*\*: ", section, re.MULTILINE)) == POLICIES.keys()


def test_each_policy_is_in_the_table_of_who_takes_turns_with_whom(docs):
    table = (docs / "partitions.md").read_text().partition("\n| policy | ")[2].partition("\n\n")[0]
    rows = [row.split(" | ")[0] for row in table.splitlines()[2:]]

    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == POLICIES.keys()
