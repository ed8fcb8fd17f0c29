"""Fetch NVIDIA's own driver libraries, for tests of what they answer on a machine without a GPU.

    python packaging/nvidia_libraries.py [--suite experimental] [--to build/nvidia]

Debian has them in its section non-free: libcuda.so.1, libnvidia-ml.so.1, and the MPS control
daemon. The machine's own apt downloads the packages from the mirror that it uses anyway and checks
their signatures; this script unpacks them into TO/VERSION. It installs nothing, changes no setting
of the machine, and needs no root. Where there is no apt, NVIDIA's installer has the same files
(`--extract-only`); TANDEM_NVIDIA_LIBRARIES=FOLDER then says where they are.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("libcuda1", "libnvidia-ml1", "nvidia-cuda-mps")
WANTED = ("libcuda.so.*", "libnvidia-ml.so.*", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
NEWEST = "experimental"  # the Debian suite with the newest driver
HINT = "unpack them from NVIDIA's installer instead, and set TANDEM_NVIDIA_LIBRARIES to the folder"


def main() -> int:
    """Fetch and unpack the libraries; print the folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suite", default=NEWEST, help=f"of Debian; {NEWEST} has the newest")
    parser.add_argument("--to", type=Path, default=ROOT / "build" / "nvidia", metavar="FOLDER")
    arguments = parser.parse_args()
    if not shutil.which("apt-get") or not KEYRING.exists():
        sys.exit(f"error: no apt with Debian's keys ({KEYRING}) here; {HINT}")
    with tempfile.TemporaryDirectory() as scratch:
        print(fetched(arguments.suite, arguments.to, Path(scratch)))
    return 0


def fetched(suite: str, target: Path, scratch: Path) -> Path:
    """Fetch the suite's libraries into a folder named after their version; return the folder."""
    apt = Apt(scratch, mirror(), suite)
    apt.get("update")
    apt.get("download", *PACKAGES)
    unpacked = scratch / "unpacked"
    for package in scratch.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(unpacked)], check=True)
    files = [path for wanted in WANTED for path in unpacked.rglob(wanted)]
    versions = {
        match[1] for path in files if (match := re.search(r"\.so\.(\d+\.[\d.]+)$", path.name))
    }
    if len(versions) != 1:
        sys.exit(
            f"error: the packages {PACKAGES} of {suite} hold versions {sorted(versions)}, not one"
        )
    folder = target / versions.pop()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path in files:
        shutil.copy2(path, folder / path.name, follow_symlinks=False)
    return folder


def mirror() -> str:
    """Find the mirror from which this machine gets Debian's packages."""
    command = ["apt-get", "indextargets", "--format", "$(ORIGIN) $(LABEL) $(REPO_URI)"]
    for line in _said([*command, "Created-By: Packages"]).splitlines():
        origin, label, address = line.split(maxsplit=2)
        if origin == label == "Debian":
            return address
    sys.exit(
        f"error: apt here knows no mirror of Debian (run `apt-get update` if it should); {HINT}"
    )


class Apt:
    """apt with package lists of its own, which cover only the section non-free of one suite."""

    def __init__(self, folder: Path, address: str, suite: str) -> None:
        """Write apt's sources into the folder, which is also where it downloads packages."""
        self.folder = folder
        source = folder / "sources.list"
        source.write_text(f"deb [signed-by={KEYRING}] {address} {suite} non-free\n")
        (folder / "lists" / "partial").mkdir(parents=True)
        self.settings = [
            f"Dir::Etc::sourcelist={source}",
            "Dir::Etc::sourceparts=/dev/null",
            f"Dir::State::Lists={folder / 'lists'}",
            "Dir::Cache::pkgcache=",
            "Dir::Cache::srcpkgcache=",
            f"Dir::Cache::archives={folder}",
            "APT::Sandbox::User=",  # only we may write to the folder, not apt's sandbox user
        ]

    def get(self, *words: str) -> None:
        """Run apt-get in the folder; if it fails, exit with its message."""
        options = [word for setting in self.settings for word in ("-o", setting)]
        _said(["apt-get", "-q", *options, *words], folder=self.folder)


def _said(command: list[str], folder: Path | None = None) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"error: {' '.join(command[:2])} failed: {done.stderr.strip()}\n{HINT}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
