"""Machine-readable details of a failed call's status: google.rpc.ErrorInfo."""

from __future__ import annotations

import grpc
from google.rpc import error_details_pb2, status_pb2

from tandem.errors import DOMAIN

KEY = "grpc-status-details-bin"  # the key that all gRPC libraries use


def details_of(
    code: grpc.StatusCode, text: str, reason: str
) -> tuple[tuple[str, str | bytes], ...]:
    """Return trailing metadata with the reason; libraries expect code and text repeated in it."""
    number, _ = code.value
    status = status_pb2.Status(code=number, message=text)
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN))
    return ((KEY, status.SerializeToString()),)
