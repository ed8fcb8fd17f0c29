"""Build a Debian package of this checkout: `make deb`.

    python packaging/deb/build.py [--python /usr/bin/python3] [--output dist]

The package installs a virtual environment in /usr/lib/tandem with everything that Tandem needs. It
uses only Debian's Python and C library, so it neither changes nor depends on other Python packages.
The native parts are those of this checkout: the Python that builds must have the same ABI as the
one that will run them, and the package depends on that one's minor version.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
HOME = Path("usr/lib/tandem")  # below the root of the target
PROGRAMS = ("tandem", "tandemd", "tandemd-helper")
SHELLS = {
    "bash": "usr/share/bash-completion/completions/tandem",
    "zsh": "usr/share/zsh/vendor-completions/_tandem",
    "fish": "usr/share/fish/vendor_completions.d/tandem.fish",
}
# Files and folders of packaging/, and where they are installed.
FILES = {
    "tandemd.service": "usr/lib/systemd/system/tandemd.service",
    "tandemd-helper.service": "usr/lib/systemd/system/tandemd-helper.service",
    "tandemd-helper.socket": "usr/lib/systemd/system/tandemd-helper.socket",
    "tandemd.sysusers": "usr/lib/sysusers.d/tandem.conf",
    "tandemd.tmpfiles": "usr/lib/tmpfiles.d/tandem.conf",
    "prometheus": "usr/share/gpu-tandem/prometheus",
    "grafana": "usr/share/gpu-tandem/grafana",
    "kubernetes": "usr/share/gpu-tandem/kubernetes",
}
SCRIPTS = ("postinst", "prerm", "postrm")
ABI = "import sysconfig, sys; print(sysconfig.get_config_var('SOABI'), *sys.version_info[:2])"


def main() -> int:
    """Build the package and print its path."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", type=Path, default=Path("/usr/bin/python3"), metavar="FILE")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", metavar="FOLDER")
    arguments = parser.parse_args()
    if shutil.which("dpkg-deb") is None:
        sys.exit("error: no dpkg-deb, which makes the package; Debian and Ubuntu have it in dpkg")
    with tempfile.TemporaryDirectory(prefix="tandem-deb-") as folder:
        stage = Path(folder) / "root"
        wheel = make_wheel(ROOT, Path(folder))
        make_environment(stage, arguments.python, [f"{wheel}[daemon,top,cuda]"])
        print(build(stage, arguments.python, arguments.output))
    return 0


def make_wheel(source: Path, folder: Path) -> Path:
    """Make a wheel of the checkout at `source`, compiling its native parts if needed."""
    options = ["--no-deps", "--no-build-isolation", "--no-index", "-w", str(folder)]
    _run(sys.executable, "-m", "pip", "-q", "wheel", *options, str(source))
    (wheel,) = folder.glob("gpu_tandem-*.whl")
    return wheel


def make_environment(stage: Path, python: Path, what: list[str], *options: str) -> None:
    """Make a virtual environment of `python` below `stage` and install `what` in it with pip."""
    own, other = (_ask(each, ABI).split() for each in (Path(sys.executable), python))
    if own != other:
        sys.exit(
            f"error: {python} has the ABI {other[0]}, and the native parts are for {own[0]}; "
            f"`make setup PYTHON={python}` in a fresh checkout, or name another with --python"
        )
    home = stage / HOME
    _run(str(python), "-m", "venv", "--without-pip", "--symlinks", str(home))
    pip = [sys.executable, "-m", "pip", "-q", "--python", str(home / "bin/python")]
    _run(*pip, "install", "--no-compile", "--no-warn-script-location", *options, *what)
    _make_movable(home, python)


def _make_movable(home: Path, python: Path) -> None:
    """Make the environment work at its final path, which is not where it was built."""
    keep = {*PROGRAMS, "python", "python3"}
    for file in (home / "bin").iterdir():
        if file.name not in keep:
            file.unlink()
    for name in ("python", "python3"):
        (home / "bin" / name).unlink(missing_ok=True)
        (home / "bin" / name).symlink_to(python if name == "python3" else "python3")
    for name in PROGRAMS:
        file = home / "bin" / name
        _, _, rest = file.read_text().partition("\n")
        file.write_text(f"#!/{HOME}/bin/python3 -I\n{rest}")
    config = home / "pyvenv.cfg"
    lines = [one for one in config.read_text().splitlines() if not one.startswith("command")]
    config.write_text("\n".join(lines) + "\n")


def build(stage: Path, python: Path, output: Path) -> Path:
    """Build the package from the files below `stage`."""
    site = next((stage / HOME / "lib").glob("python*/site-packages"))
    # Compile now: users cannot write there later, so each start would compile everything again.
    _run(str(python), "-m", "compileall", "-q", "-s", str(stage), "-p", "/", str(site))
    for name in PROGRAMS:
        link = stage / "usr/bin" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"../lib/tandem/bin/{name}")
    for name, place in FILES.items():
        _copy(ROOT / "packaging" / name, stage / place)
    _copy(ROOT / "LICENSE", stage / "usr/share/doc/gpu-tandem/copyright")
    for shell, place in SHELLS.items():
        words = [str(stage / HOME / "bin/python3"), "-I", "-m", "tandem.cli", "completion", shell]
        text = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        (stage / place).parent.mkdir(parents=True, exist_ok=True)
        (stage / place).write_text(text)
    _describe(stage, python)
    output.mkdir(parents=True, exist_ok=True)
    name = output / f"gpu-tandem_{_version()}_{_architecture()}.deb"
    _run("dpkg-deb", "--root-owner-group", "-Zxz", "-z3", "--build", str(stage), str(name))
    return name


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)


def _describe(stage: Path, python: Path) -> None:
    folder = stage / "DEBIAN"
    folder.mkdir()
    size_kib = sum(f.lstat().st_size for f in stage.rglob("*") if not f.is_dir()) // 1024
    _, major, minor = _ask(python, ABI).split()
    (folder / "control").write_text(
        f"Package: gpu-tandem\n"
        f"Version: {_version()}\n"
        f"Architecture: {_architecture()}\n"
        f"Maintainer: Tandem <root@localhost>\n"
        f"Installed-Size: {size_kib}\n"
        f"Depends: python3 (>= {major}.{minor}), python3 (<< {major}.{int(minor) + 1}), "
        f"libc6 (>= {platform.libc_ver()[1]}), libstdc++6, libgcc-s1, "
        f"systemd | systemd-standalone-sysusers, systemd | systemd-standalone-tmpfiles\n"
        f"Section: admin\n"
        f"Priority: optional\n"
        f"Description: {_project()['description']}\n"
        f" The daemon tandemd, the command tandem, and the library that it preloads into jobs.\n"
    )
    for name in SCRIPTS:
        shutil.copyfile(HERE / name, folder / name)
        (folder / name).chmod(0o755)
    for directory, _, files in os.walk(stage):
        Path(directory).chmod(0o755)
        for file in (Path(directory) / each for each in files):
            if not file.is_symlink():
                file.chmod(0o755 if os.access(file, os.X_OK) else 0o644)


def _project() -> dict[str, str]:
    found: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def _version() -> str:
    """The version as Debian sorts it: 1.0~rc1 comes before 1.0."""
    return re.sub(r"(?<=\d)(a|b|rc|\.dev)(?=\d)", r"~\1", _project()["version"])


def _architecture() -> str:
    words = ["dpkg", "--print-architecture"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def _ask(python: Path, program: str) -> str:
    words = [str(python), "-c", program]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def _run(*words: str) -> None:
    subprocess.run(words, check=True)


if __name__ == "__main__":
    sys.exit(main())
