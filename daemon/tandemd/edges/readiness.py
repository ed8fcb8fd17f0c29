"""grpc.health.v1: whether the daemon is deciding and the driver answers.

A check needs no token, because a service manager's probe has none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from grpc_health.v1 import health
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

if TYPE_CHECKING:  # grpcio has no such generics at run time
    import grpc

    Context = grpc.aio.ServicerContext[HealthCheckRequest, HealthCheckResponse]

LOOK_S = 0.5  # how soon watchers hear of a change


class Readiness(health.aio.HealthServicer):  # type: ignore[misc] # grpc_health has no types
    """The health of the one service, `""`: the whole daemon. Belongs to the event loop's thread."""

    def __init__(self, is_ready: Callable[[], bool]) -> None:
        """`is_ready` is called in the event loop, so it must not block."""
        super().__init__()
        self._is_ready = is_ready

    async def Check(self, request: HealthCheckRequest, context: Context) -> HealthCheckResponse:  # noqa: N802 - gRPC's name
        """Answer with the present state; what watchers were told may be up to LOOK_S old."""
        told: HealthCheckResponse = await super().Check(request, context)
        if told.status == HealthCheckResponse.SERVING and not self._is_ready():
            return HealthCheckResponse(status=HealthCheckResponse.NOT_SERVING)
        return told

    async def run(self) -> None:
        """Tell watchers of changes, until cancelled."""
        before: bool | None = None
        while True:
            if (now := self._is_ready()) is not before:
                said = HealthCheckResponse.SERVING if now else HealthCheckResponse.NOT_SERVING
                await self.set("", said)
                before = now
            await asyncio.sleep(LOOK_S)
