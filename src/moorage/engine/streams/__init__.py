"""Streaming endpoint of the engine: exec, attach and port-forward."""

from moorage.engine.streams.pod_port import dial_port
from moorage.engine.streams.server import StreamServer
from moorage.engine.streams.target import Target

__all__ = ["StreamServer", "Target", "dial_port"]
