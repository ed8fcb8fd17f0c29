"""What comes with the status of a call that fails: google.rpc.ErrorInfo, for programs."""

from __future__ import annotations

import grpc
from google.rpc import error_details_pb2, status_pb2

from tandem.errors import DOMAIN

KEY = "grpc-status-details-bin"  # as all gRPC libraries call it


def details_of(
    code: grpc.StatusCode, text: str, reason: str
) -> tuple[tuple[str, str | bytes], ...]:
    """Trailing metadata with the reason; libraries want code and text in it again, as they are."""
    number, _ = code.value
    status = status_pb2.Status(code=number, message=text)
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN))
    return ((KEY, status.SerializeToString()),)
