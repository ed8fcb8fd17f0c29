"""Kernelspecs: how Jupyter is told of kernels that share the GPU.

The format and the places are Jupyter's public ones (`kernel.json` in `<data folder>/kernels/NAME`),
so nothing of Jupyter is imported. A kernel goes through `tandem run`, for its `exec` leaves Jupyter
the process that it started: interrupts and restarts are signals to that pid. Variables alone would
do for a process, but then each process of a kernel is a job of its own, and no daemon can refuse.
"""

import importlib.util
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tandem import _environment
from tandem._attach import Request
from tandem.errors import NotFoundError, StateError, UsageError

_OURS = "tandem"  # the key in a kernelspec's metadata
_NAME = re.compile(r"[a-z0-9._-]+", re.ASCII)
_SYSTEM = ("/usr/local/share/jupyter", "/usr/share/jupyter")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernelspec:
    """One of ours that is installed."""

    name: str
    display_name: str
    path: str
    environment: Mapping[str, str]


def user_folder(environ: Mapping[str, str]) -> Path:
    """Where Jupyter looks for what is the user's own."""
    if own := environ.get("JUPYTER_DATA_DIR"):
        return Path(own)
    return Path(environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "jupyter"


def prefix_folder(prefix: Path) -> Path:
    """Where it looks below a prefix, as that of an environment."""
    return prefix.absolute() / "share/jupyter"


def content(
    request: Request, *, display_name: str, gpu: str | None, variables: Mapping[str, str]
) -> dict[str, object]:
    """The kernel of this interpreter; `variables` are set besides those of the request.

    Raises:
        StateError: this interpreter has no ipykernel.
        UsageError: what is asked for contradicts itself.
    """
    _environment.check_request(request)
    if importlib.util.find_spec("ipykernel_launcher") is None:
        raise StateError(
            f"'{sys.executable}' has no ipykernel, which a kernel needs; "
            f"{sys.executable} -m pip install ipykernel"
        )
    asked = _environment.request_environment(request) | dict(variables)
    # -P: a tandem.py beside the notebook is not us. Frozen modules would be unknown to a debugger.
    run = [sys.executable, "-P", "-m", "tandem.cli", "run", *(["-i", gpu] if gpu else []), "--"]
    kernel = [sys.executable, "-Xfrozen_modules=off", "-m", "ipykernel_launcher"]
    return {
        "argv": [*run, *kernel, "-f", "{connection_file}"],
        "display_name": display_name,
        "language": "python",
        # Jupyter puts variables in for $NAME.
        "env": {name: value.replace("$", "$$") for name, value in asked.items()},
        "metadata": {"debugger": True, _OURS: True},
    }


def install(folder: Path, name: str, spec: Mapping[str, object], *, replace: bool) -> Path:
    """Write it below Jupyter's `folder`; returns where.

    Raises:
        UsageError: the name is none for a kernel.
        StateError: there is one by the name, and it is not to be replaced, or it is not writable.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"--name {name!r} may have small letters a-z, digits, dots, dashes and underscores only"
        )
    place = folder / "kernels" / name
    if place.exists() and not replace:
        raise StateError(f"there is a kernel '{place}' already; add --replace, or --name another")
    try:
        if place.exists():
            shutil.rmtree(place)
        place.mkdir(parents=True)
        (place / "kernel.json").write_text(json.dumps(spec, indent=1) + "\n")
    except OSError as exc:
        raise StateError(f"cannot write '{place}': {exc.strerror}; see --user, --prefix") from exc
    return place


def installed(environ: Mapping[str, str]) -> list[Kernelspec]:
    """Ours, wherever Jupyter looks."""
    return [spec for folder in _folders(environ) for spec in _in(folder / "kernels")]


def remove(name: str, environ: Mapping[str, str]) -> list[Path]:
    """Remove what we installed by this name, wherever Jupyter looks; returns where that was.

    Raises:
        NotFoundError: there is none by the name that is ours.
        StateError: it is not ours to remove.
    """
    places = [Path(spec.path) for spec in installed(environ) if spec.name == name]
    if not places:
        raise NotFoundError(f"no kernel '{name}' of Tandem's; `tandem kernelspec list` has them")
    for place in places:
        try:
            shutil.rmtree(place)
        except OSError as exc:
            raise StateError(f"cannot remove '{place}': {exc.strerror}") from exc
    return places


def _folders(environ: Mapping[str, str]) -> Iterator[Path]:
    named = [Path(p) for p in environ.get("JUPYTER_PATH", "").split(os.pathsep) if p]
    places = [*named, user_folder(environ), prefix_folder(Path(sys.prefix)), *map(Path, _SYSTEM)]
    yield from dict.fromkeys(places)


def _in(kernels: Path) -> Iterator[Kernelspec]:
    for file in sorted(kernels.glob("*/kernel.json")):
        try:
            spec = json.loads(file.read_text())
            if spec.get("metadata", {}).get(_OURS) is not True:
                continue
            yield Kernelspec(
                name=file.parent.name,
                display_name=str(spec["display_name"]),
                path=str(file.parent),
                environment=dict(spec["env"]),
            )
        except (OSError, ValueError, KeyError, AttributeError):
            continue  # another's, and broken: Jupyter says so itself
