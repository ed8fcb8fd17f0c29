"""Fetch NVIDIA's own driver libraries, for tests that ask them what they answer without a card.

    python packaging/nvidia_libraries.py [--suite experimental] [--to build/nvidia]

Debian has them in its section non-free: libcuda.so.1, libnvidia-ml.so.1, and MPS's control daemon.
They come, with signatures checked, by the machine's own apt from the mirror that it uses anyway,
and are unpacked into TO/VERSION: nothing is installed, no setting of the machine changes, and root
is not needed. Where there is no apt: NVIDIA's installer has the same files (`--extract-only`), and
TANDEM_NVIDIA_LIBRARIES=FOLDER says where they are.
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
NEWEST = "experimental"  # of Debian's suites the one with the newest driver
HINT = "unpack them from NVIDIA's installer instead, and set TANDEM_NVIDIA_LIBRARIES to the folder"


def main() -> int:
    """Fetch and unpack; prints the folder."""
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
    """The folder with the libraries of that suite, called as their version is."""
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
    """Where this machine gets Debian's packages from."""
    command = ["apt-get", "indextargets", "--format", "$(ORIGIN) $(LABEL) $(REPO_URI)"]
    for line in _said([*command, "Created-By: Packages"]).splitlines():
        origin, label, address = line.split(maxsplit=2)
        if origin == label == "Debian":
            return address
    sys.exit(
        f"error: apt here knows no mirror of Debian (run `apt-get update` if it should); {HINT}"
    )


class Apt:
    """apt with lists of its own, which hold the section non-free of one suite and nothing else."""

    def __init__(self, folder: Path, address: str, suite: str) -> None:
        """Write its sources into the folder, where packages are downloaded to as well."""
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
            "APT::Sandbox::User=",  # the folder is only ours to write to
        ]

    def get(self, *words: str) -> None:
        """Run apt-get in the folder; what it says is the error."""
        options = [word for setting in self.settings for word in ("-o", setting)]
        _said(["apt-get", "-q", *options, *words], folder=self.folder)


def _said(command: list[str], folder: Path | None = None) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"error: {' '.join(command[:2])} failed: {done.stderr.strip()}\n{HINT}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
