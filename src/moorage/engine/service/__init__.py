"""gRPC services of the CRI: each RPC is a method of one of the servicers here."""

from moorage.engine.service.server import serve

__all__ = ["serve"]
