"""Where Tandem's files are: a daemon's runtime directory, its sockets, the preload library."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ATTACH_SOCKET = "attach.sock"
LOGIN_SOCKET = "login.sock"
RPC_SOCKET = "tandemd.sock"

SHIM = Path(__file__).absolute().parent / "libtandem.so"

VARIABLE = "TANDEM_RUNTIME_DIR"
_VARIABLES = (VARIABLE, "RUNTIME_DIRECTORY")
SYSTEM = Path("/run/tandem")
_SUN_PATH_BYTES = 108  # of sockaddr_un, including the final NUL


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeDir:
    """A directory where a daemon may be, and why it was chosen."""

    path: Path
    origin: str

    @property
    def attach(self) -> Path:
        """The socket to which shims and `tandem run` connect."""
        return self.path / ATTACH_SOCKET

    @property
    def login(self) -> Path:
        """The socket from which a client gets its token."""
        return self.path / LOGIN_SOCKET

    @property
    def rpc(self) -> Path:
        """The socket on which gRPC listens."""
        return self.path / RPC_SOCKET


def runtime_dir(environ: Mapping[str, str], *, uid: int) -> RuntimeDir:
    """The directory where a client of `uid` looks for the daemon; it need not exist.

    A variable that names a directory decides. Otherwise the first of the usual places with an
    attach socket wins, so a user's own daemon takes precedence over the machine's, which users
    without one find.
    """
    for variable in _VARIABLES:
        # systemd passes several directories separated by colons; ours is the first.
        if value := environ.get(variable, "").split(":")[0]:
            return RuntimeDir(path=Path(value), origin=variable)
    places = _usual_places(environ, uid=uid)
    for place in places:
        if _trusted(place.path, uid=uid) and os.path.exists(place.attach):
            return place
    existing = [p for p in places if p.path != SYSTEM or os.path.isdir(p.path)]
    return existing[0]


def attach_socket(environ: Mapping[str, str], *, uid: int) -> Path:
    """TANDEM_SOCKET, or the attach socket of the runtime directory."""
    if value := environ.get("TANDEM_SOCKET"):
        return Path(value)
    return runtime_dir(environ, uid=uid).attach


def named(environ: Mapping[str, str]) -> dict[str, str]:
    """The variable by which `environ` itself names the daemon, if any, with an absolute path."""
    for variable in ("TANDEM_SOCKET", *_VARIABLES):
        if value := environ.get(variable, "").split(":")[0]:
            name = variable if variable == "TANDEM_SOCKET" else VARIABLE
            return {name: str(Path(value).absolute())}
    return {}


def to_be_named(environ: Mapping[str, str], *, uid: int) -> dict[str, str]:
    """The variable that leads a program started elsewhere to the daemon that is found from here.

    Empty for /run/tandem, where every program looks, and if no daemon was named or found.
    """
    place = runtime_dir(environ, uid=uid)
    said = named(environ)
    if not said and os.path.exists(place.attach):
        said = {VARIABLE: str(place.path)}
    return {} if said.get(VARIABLE) == str(SYSTEM) else said


def fits_socket_address(path: Path) -> bool:
    """Whether the kernel accepts `path` as the name of a unix socket."""
    return len(os.fsencode(path)) < _SUN_PATH_BYTES


def _usual_places(environ: Mapping[str, str], *, uid: int) -> list[RuntimeDir]:
    places = [
        RuntimeDir(path=SYSTEM, origin="system"),
        RuntimeDir(path=Path(f"/tmp/tandem-{uid}"), origin="fallback"),
    ]
    if xdg := environ.get("XDG_RUNTIME_DIR"):
        places.insert(0, RuntimeDir(path=Path(xdg) / "tandem", origin="XDG_RUNTIME_DIR"))
    return places


def _trusted(path: Path, *, uid: int) -> bool:
    # Anybody can make /tmp/tandem-<somebody's uid> and listen there.
    try:
        owner = path.lstat().st_uid
    except OSError:
        return False
    return owner in (0, uid) or path == SYSTEM
