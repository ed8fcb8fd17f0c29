"""Channels to others on this node: the kubelet, and the daemon's health service."""

from pathlib import Path

import grpc

ANSWER_S = 5.0  # time to answer, generous for a process that is just starting


def dial(socket: Path) -> grpc.Channel:
    """Open a channel to that socket, without a proxy."""
    return grpc.insecure_channel(f"unix:{socket}", options=[("grpc.enable_http_proxy", 0)])
