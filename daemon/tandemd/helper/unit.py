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
# SYS_ADMIN: NVIDIA's driver demands it to cut a GPU by MIG. SYS_PTRACE, DAC_OVERRIDE: to save a
# process of another user, the driver goes through that process's /proc. SETUID, SETGID, KILL: MPS
# starts and ends a server as the user whose clients it serves.
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
# MPS and its clients survive a restart of the helper; without clients the helper ends MPS itself.
KillMode=process
LockPersonality=yes
# Not MemoryDenyWriteExecute: MPS servers, in which NVIDIA's driver runs, would inherit it.
NoNewPrivileges=yes
# Not PrivateNetwork: the driver's sockets between MPS servers and their clients work only within
# one network namespace. Not PrivateTmp: root's MPS may be in /tmp/nvidia-mps.
ProtectClock=yes
ProtectControlGroups=yes
ProtectHome=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
# Not ProtectProc, not PrivatePIDs: jobs are identified by their pids.
ProtectSystem=strict
RestrictAddressFamilies=AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RuntimeDirectory=tandem-helper
RuntimeDirectoryMode=0755
# Holds the helper's socket and the pipes of MPS.
RuntimeDirectoryPreserve=yes
SystemCallArchitectures=native
# If the driver makes another system call, it fails, instead of ending the helper.
SystemCallErrorNumber=EPERM
SystemCallFilter=@system-service
# A process that is being saved gets a minute.
TimeoutStopSec=90s
Type=exec
UMask=0022
"""

SOCKET = """\
# Made by `tandemd-helper --print-unit socket`.
[Unit]
Description=Socket on which the Tandem GPU sharing daemon asks for what needs root

[Socket]
DirectoryMode=0755
ListenSequentialPacket=/run/tandem-helper/helper.sock
RemoveOnStop=yes
# Only for the daemon's user; the helper also checks the peer's uid with the kernel.
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
