"""SPDY/3.1 subset that Kubernetes uses: the client opens streams, without flow control."""

from moorage.wire.streaming.spdy.server import ServerSession, SpdyError, SpdySession, SpdyStream

__all__ = ["ServerSession", "SpdyError", "SpdySession", "SpdyStream"]
