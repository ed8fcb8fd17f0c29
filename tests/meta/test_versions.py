"""All parts report the project's version."""

import re
import tomllib


def test_a_shim_says_the_version_that_the_project_has(root):
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    said = re.search(
        r"kShimVersion = (\d+)u << 16 \| (\d+)u << 8 \| (\d+)u;",
        (root / "shim/job/session.cpp").read_text(),
    )

    assert ".".join(said.groups()) == project["version"]
