"""What the preload tests share: paths, a job's environment, one compiler call."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
GENERATED = ROOT / "build/generated"

sys.path.insert(0, str(ROOT / "csrc"))

# Leaves out the variables of a coverage or sanitizer run of the tests themselves.
INHERITED = ("PATH", "HOME", "LANG", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")


@dataclass(frozen=True, kw_only=True)
class Preload:
    """The libraries under test and an environment that loads them."""

    shim: Path
    driver: Path
    folder: Path

    def environment(self, **extra: str) -> dict[str, str]:
        """Return a job's variables; TANDEM_RUNTIME_DIR is an empty folder unless given."""
        kept = {name: os.environ[name] for name in INHERITED if name in os.environ}
        return (
            kept
            | {
                "LD_PRELOAD": str(self.shim),
                "LD_LIBRARY_PATH": str(self.driver.parent),
                "TANDEM_RUNTIME_DIR": str(self.folder),
            }
            | extra
        )


def compile_source(source: Path, output: Path, *flags: str) -> None:
    """Compile a source; if that fails, the error has the compiler's own output."""
    command = [
        "g++",
        "-std=c++17",
        "-O1",
        "-o",
        str(output),
        str(source),
        *flags,
        "-ldl",
        "-pthread",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
