"""SPDY/3.1 as far as Kubernetes uses it: the client opens streams, without flow control."""

from moorage.streaming.spdy.server import ServerSession, SpdyStream
from moorage.streaming.spdy.session import SpdyError, SpdySession

__all__ = ["ServerSession", "SpdyError", "SpdySession", "SpdyStream"]
