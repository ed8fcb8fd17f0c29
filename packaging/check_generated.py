"""Check that the generated files in the repository are up to date.

    python packaging/check_generated.py

Prints each difference and how to regenerate the file; the exit code is 1 if there is any. A
generator that cannot run, such as that of the stubs without a network, is an error, not a pass.
"""

from __future__ import annotations

import difflib
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import generate_abi
import generate_api_docs
import generate_cli_docs
import generate_compatibility
import generate_config_docs
import generate_driver_facts
import generate_stubs

ROOT = Path(__file__).resolve().parent.parent
API_GENERATOR = ROOT / "csrc" / "softgpu" / "generate_table.py"
DIFF_LINES = 20
PAGES = (  # each makes one file
    generate_abi,
    generate_api_docs,
    generate_cli_docs,
    generate_compatibility,
    generate_config_docs,
    generate_driver_facts,
)


@dataclass(frozen=True, kw_only=True)
class Generated:
    """Some committed files, and their generator."""

    folder: Path
    remedy: str
    generate: Callable[[Path], None]
    exact: bool  # False: the folder also holds files that this generator does not make here


def main() -> int:
    """Compare everything; return the exit code."""
    problems = [text for generated in everything() for text in differences(generated)]
    for text in problems:
        print(text, file=sys.stderr)
    return 1 if problems else 0


def everything() -> list[Generated]:
    """List all files that are generated and committed."""
    rows = [
        Generated(
            folder=generate_stubs.OUTPUT,
            remedy="make stubs",
            generate=generate_stubs.generate,
            exact=True,
        ),
        *map(_page, PAGES),
    ]
    if API_GENERATOR.is_file():
        rows.append(
            Generated(
                folder=ROOT / "csrc" / "api",
                remedy="make headers",
                generate=_generate_api,
                exact=False,  # one file per version of cuda.h, and only one version is here
            )
        )
    return rows


def _page(module: ModuleType) -> Generated:
    return Generated(
        folder=module.OUTPUT,
        remedy=f"python packaging/{module.__name__}.py",
        generate=module.generate,
        exact=False,
    )


def differences(generated: Generated) -> list[str]:
    """Describe each file that is missing, left over or different."""
    with tempfile.TemporaryDirectory() as scratch:
        fresh_folder = Path(scratch)
        generated.generate(fresh_folder)
        names = _names(fresh_folder) | (_names(generated.folder) if generated.exact else set())
        return [
            f"{generated.folder / name} is stale; run `{generated.remedy}`\n{diff}"
            for name in sorted(names)
            if (diff := _diff(generated.folder / name, fresh_folder / name))
        ]


def _names(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir() if p.is_file()} if folder.is_dir() else set()


def _diff(committed: Path, fresh: Path) -> str:
    before, after = (p.read_text().splitlines() if p.is_file() else [] for p in (committed, fresh))
    if before == after and committed.is_file() == fresh.is_file():
        return ""
    lines = list(difflib.unified_diff(before, after, "committed", "generated", lineterm="", n=0))
    shown = [line[:160] for line in lines[:DIFF_LINES]]
    return "\n".join(shown) or "  exists on one side only"


def _generate_api(output: Path) -> None:
    command = [sys.executable, str(API_GENERATOR), "--write-api", str(output)]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
