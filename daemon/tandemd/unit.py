"""The daemon's systemd unit, with the path of its program filled in.

`packaging/tandemd.service` is the unit for /usr/bin/tandemd; a test compares the two.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

# Keys are sorted within a section, as in systemd's own units.
TEMPLATE = """\
# Made by `tandemd --print-unit`.
[Unit]
Description=Tandem GPU sharing daemon
After=nvidia-persistenced.service

[Service]
# To cancel jobs of all users; the daemon drops it from programs that it starts.
AmbientCapabilities=CAP_KILL
CapabilityBoundingSet=CAP_KILL
# Not PrivateDevices: NVML reads the GPUs' device files.
DeviceAllow=/dev/nvidiactl rw
DeviceAllow=char-nvidia rw
DeviceAllow=char-nvidia-caps rw
DeviceAllow=char-nvidia-frontend rw
DeviceAllow=char-nvidia-uvm rw
DevicePolicy=closed
ExecReload=kill -HUP $MAINPID
ExecStart=@PROGRAM@
LimitNOFILE=524288
LockPersonality=yes
MemoryDenyWriteExecute=yes
NoNewPrivileges=yes
# Not PrivateUsers, not ProtectProc: peers are identified by the uid and pid the kernel reports.
PrivateNetwork=yes
# Not PrivateTmp: MPS has its pipes in /tmp/nvidia-mps, and may start later than this.
ProtectClock=yes
ProtectControlGroups=yes
ProtectHome=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectSystem=strict
Restart=on-failure
RestartSec=1s
RestrictAddressFamilies=AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RuntimeDirectory=tandem
RuntimeDirectoryMode=0755
# Job containers mount this directory: they would not see one created anew at the next start.
RuntimeDirectoryPreserve=yes
StateDirectory=tandem
StateDirectoryMode=0700
SystemCallArchitectures=native
SystemCallFilter=@system-service
# Time to bring back what the driver saved (one minute); some systems kill sooner by default.
TimeoutStopSec=120s
Type=notify
UMask=0077
User=tandem
WatchdogSec=10s

[Install]
WantedBy=multi-user.target
"""


HOMES = (Path("/home"), Path("/root"), Path("/run/user"))  # what ProtectHome hides


def render(program: Path) -> str:
    """Return the unit that runs `program`."""
    return filled(TEMPLATE, program)


def filled(template: str, program: Path) -> str:
    """Return a unit with the path of its program, which it must be able to start."""
    unit = template.replace("@PROGRAM@", str(program))
    if any(program.is_relative_to(home) for home in HOMES):  # it could not be started otherwise
        return unit.replace("ProtectHome=yes", "ProtectHome=read-only")
    return unit


def own_program() -> Path:
    """Return the `tandemd` of this installation."""
    return program_of("tandemd")


def program_of(name: str) -> Path:
    """Return the path of a program of this installation."""
    beside = Path(sys.executable).with_name(name)
    if beside.exists():
        return beside
    found = shutil.which(name)
    return Path(found) if found else beside
