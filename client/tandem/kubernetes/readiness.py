"""Asks the daemon for its health by grpc.health.v1, as probes do."""

from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tandem.errors import UnavailableError
from tandem.kubernetes.sockets import ANSWER_S, dial


def require_ready(socket: Path) -> None:
    """Ask the daemon with this RPC socket; block until it answers.

    Raises:
        UnavailableError: it is not healthy, none of its GPUs answers, or it does not tell.
    """
    with dial(socket) as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=ANSWER_S
            )
        except grpc.RpcError as exc:
            why = exc.details() or exc.code().name
            raise UnavailableError(f"the daemon does not say whether it is well: {why}") from exc
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        raise UnavailableError(
            "the daemon says that it is not well, or that no GPU answers; look at its log"
        )
