"""Streaming endpoint of the engine: exec, attach and port-forward."""

from moorage.engine.streams.forward import dial_port
from moorage.engine.streams.requests import Target
from moorage.engine.streams.server import StreamServer

__all__ = ["StreamServer", "Target", "dial_port"]
