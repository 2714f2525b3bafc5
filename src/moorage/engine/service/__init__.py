"""The CRI as a gRPC service: each call is a method of one of the objects here."""

from moorage.engine.service.server import serve

__all__ = ["serve"]
