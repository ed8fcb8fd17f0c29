"""Kernelspecs: how Jupyter learns of kernels that share the GPU.

The format and the places are Jupyter's public ones (`kernel.json` in `<data folder>/kernels/NAME`),
so nothing of Jupyter is imported. A kernel is started through `tandem run`. Its `exec` keeps the
pid of the process that Jupyter started, to which Jupyter sends signals for interrupts and restarts.
Environment variables alone would also work, but then each process of a kernel would be a job of its
own, and no daemon could refuse it.
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

_OURS = "tandem"  # key in the metadata of our kernelspecs
_NAME = re.compile(r"[a-z0-9._-]+", re.ASCII)
_SYSTEM = ("/usr/local/share/jupyter", "/usr/share/jupyter")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernelspec:
    """An installed kernelspec of ours."""

    name: str
    display_name: str
    path: str
    environment: Mapping[str, str]


def user_folder(environ: Mapping[str, str]) -> Path:
    """The user's own Jupyter data folder."""
    if own := environ.get("JUPYTER_DATA_DIR"):
        return Path(own)
    return Path(environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "jupyter"


def prefix_folder(prefix: Path) -> Path:
    """The Jupyter data folder below a prefix, such as that of an environment."""
    return prefix.absolute() / "share/jupyter"


def content(
    request: Request, *, display_name: str, gpu: str | None, variables: Mapping[str, str]
) -> dict[str, object]:
    """The kernelspec for this interpreter; `variables` are set in addition to the request's.

    Raises:
        StateError: this interpreter has no ipykernel.
        UsageError: the request contradicts itself.
    """
    _environment.check_request(request)
    if importlib.util.find_spec("ipykernel_launcher") is None:
        raise StateError(
            f"'{sys.executable}' has no ipykernel, which a kernel needs; "
            f"{sys.executable} -m pip install ipykernel"
        )
    asked = _environment.request_environment(request) | dict(variables)
    # -P: do not import a tandem.py beside the notebook. Debuggers cannot see into frozen modules.
    run = [sys.executable, "-P", "-m", "tandem.cli", "run", *(["-i", gpu] if gpu else []), "--"]
    kernel = [sys.executable, "-Xfrozen_modules=off", "-m", "ipykernel_launcher"]
    return {
        "argv": [*run, *kernel, "-f", "{connection_file}"],
        "display_name": display_name,
        "language": "python",
        # Jupyter substitutes variables for $NAME.
        "env": {name: value.replace("$", "$$") for name, value in asked.items()},
        "metadata": {"debugger": True, _OURS: True},
    }


def install(folder: Path, name: str, spec: Mapping[str, object], *, replace: bool) -> Path:
    """Write the kernelspec below Jupyter's `folder`; return where.

    Raises:
        UsageError: the name is not valid for a kernel.
        StateError: a kernel of that name exists and `replace` is not set, or the folder is not
            writable.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"--name {name!r} may contain only the letters a-z, digits, dots, dashes and "
            "underscores"
        )
    place = folder / "kernels" / name
    if place.exists() and not replace:
        raise StateError(
            f"a kernel '{place}' exists already; add --replace, or choose another --name"
        )
    try:
        if place.exists():
            shutil.rmtree(place)
        place.mkdir(parents=True)
        (place / "kernel.json").write_text(json.dumps(spec, indent=1) + "\n")
    except OSError as exc:
        raise StateError(f"cannot write '{place}': {exc.strerror}; see --user, --prefix") from exc
    return place


def installed(environ: Mapping[str, str]) -> list[Kernelspec]:
    """Our kernelspecs in all places where Jupyter looks."""
    return [spec for folder in _folders(environ) for spec in _in(folder / "kernels")]


def remove(name: str, environ: Mapping[str, str]) -> list[Path]:
    """Remove our kernelspecs of this name wherever Jupyter looks; return where they were.

    Raises:
        NotFoundError: no kernelspec of ours has that name.
        StateError: this user may not remove it.
    """
    places = [Path(spec.path) for spec in installed(environ) if spec.name == name]
    if not places:
        raise NotFoundError(f"Tandem has no kernel '{name}'; `tandem kernelspec list` lists them")
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
            continue  # not ours, or broken: Jupyter reports that itself
