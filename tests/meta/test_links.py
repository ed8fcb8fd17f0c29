"""Links between the documents lead to a file and a heading that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(document):
    """Return the headings' anchors as GitHub makes them: lower case, hyphens, no other signs."""
    found, in_code = [], False
    for line in document.read_text().splitlines():
        in_code ^= line.startswith("```")
        heading = re.match(r"#+ (.*)", line)
        if heading and not in_code:
            shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1])
            name = re.sub(r"[^\w\- ]", "", shown.lower()).strip().replace(" ", "-")
            found.append(f"{name}-{found.count(name)}" if name in found else name)
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(document):
    lost = []
    for link in LINK.findall(document.read_text()):
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if link.startswith("http"):
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            lost.append(link)

    assert lost == []


def test_a_heading_is_found_by_its_anchor(tmp_path):
    document = tmp_path / "a.md"
    document.write_text("# `One` (two): three!\n```\n# no heading\n```\n## Four\n## Four\n")

    assert anchors(document) == ["one-two-three", "four", "four-1"]
