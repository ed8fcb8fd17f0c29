"""The helper's systemd units, with the path of its program filled in.

`packaging/tandemd-helper.*` are the units for /usr/bin/tandemd-helper; a test compares the two.
"""

from __future__ import annotations

from pathlib import Path

from tandemd.unit import filled, program_of

# Keys are sorted within a section, as in systemd's own units.
SERVICE = """\
# Made by `tandemd-helper --print-unit service`.
[Unit]
Description=What the Tandem GPU sharing daemon needs root for
After=nvidia-persistenced.service

[Service]
# SYS_ADMIN: NVIDIA's driver asks for it before it cuts a GPU by MIG. SYS_PTRACE, DAC_OVERRIDE: its
# way to a process of another user, to save it, is through that one's /proc. SETUID, SETGID, KILL:
# MPS begins and ends a server as the user whose clients it has.
CapabilityBoundingSet=CAP_DAC_OVERRIDE CAP_KILL CAP_SETGID CAP_SETUID CAP_SYS_ADMIN CAP_SYS_PTRACE
# Not PrivateDevices: NVML reads the GPUs' device files.
DeviceAllow=/dev/nvidiactl rw
DeviceAllow=char-nvidia rw
DeviceAllow=char-nvidia-caps rw
DeviceAllow=char-nvidia-frontend rw
DeviceAllow=char-nvidia-uvm rw
DevicePolicy=closed
ExecStart=@PROGRAM@ --user tandem
IPAddressDeny=any
# MPS outlives a restart of the helper, with its clients; without any the helper ends it itself.
KillMode=process
LockPersonality=yes
# Not MemoryDenyWriteExecute: servers of MPS, in which NVIDIA's driver computes, inherit it.
NoNewPrivileges=yes
# Not PrivateNetwork: the driver has sockets between servers of MPS and their clients that only one
# network namespace sees. Not PrivateTmp: root's MPS may be in /tmp/nvidia-mps.
ProtectClock=yes
ProtectControlGroups=yes
ProtectHome=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
# Not ProtectProc, not PrivatePIDs: jobs are known by their pids.
ProtectSystem=strict
RestrictAddressFamilies=AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RuntimeDirectory=tandem-helper
RuntimeDirectoryMode=0755
# Its socket is there, and the pipe of MPS.
RuntimeDirectoryPreserve=yes
SystemCallArchitectures=native
# An answer, not the end of the helper, where the driver asks for more.
SystemCallErrorNumber=EPERM
SystemCallFilter=@system-service
# A process that is being saved has a minute.
TimeoutStopSec=90s
Type=exec
UMask=0022
"""

SOCKET = """\
# Made by `tandemd-helper --print-unit socket`.
[Unit]
Description=Where the Tandem GPU sharing daemon asks for what takes root

[Socket]
DirectoryMode=0755
ListenSequentialPacket=/run/tandem-helper/helper.sock
RemoveOnStop=yes
# The daemon's user alone; the helper asks the kernel as well.
SocketMode=0600
SocketUser=tandem

[Install]
WantedBy=sockets.target
"""

TEMPLATES = {"service": SERVICE, "socket": SOCKET}


def render(kind: str, program: Path) -> str:
    """Return the unit of this kind, for `program`."""
    return filled(TEMPLATES[kind], program)


def own_program() -> Path:
    """Return the `tandemd-helper` of this installation."""
    return program_of("tandemd-helper")
