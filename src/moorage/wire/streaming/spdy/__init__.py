"""SPDY/3.1 subset that Kubernetes uses: the client opens streams, without flow control."""

from moorage.wire.streaming.spdy.server import ServerSession, SpdyStream
from moorage.wire.streaming.spdy.session import SpdyError, SpdySession

__all__ = ["ServerSession", "SpdyError", "SpdySession", "SpdyStream"]
