"""How others on this node are called: the kubelet, and the daemon's health."""

from pathlib import Path

import grpc

ANSWER_S = 5.0  # to answer in: who starts just now has much to do


def dial(socket: Path) -> grpc.Channel:
    """A channel to that socket, and to no proxy."""
    return grpc.insecure_channel(f"unix:{socket}", options=[("grpc.enable_http_proxy", 0)])
