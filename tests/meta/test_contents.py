"""docs/README.md leads to every page."""

import re


def test_every_page_is_in_the_list_of_pages(docs):
    listed = set(re.findall(r"\]\(([\w-]+\.md)", (docs / "README.md").read_text()))

    assert listed == {page.name for page in docs.glob("*.md")} - {"README.md"}
