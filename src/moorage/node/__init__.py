"""The node agent: runs the pods that name its node, under the handlers their classes name.

`run_node` is the whole of it; everything else is its inside.
"""

from moorage.node.agent import COMPONENT, run_node
from moorage.node.options import (
    ContainerGarbageOptions,
    ImageGarbageOptions,
    LogRotationOptions,
    NodeOptions,
    OptionsError,
    ServerOptions,
)

__all__ = [
    "COMPONENT",
    "ContainerGarbageOptions",
    "ImageGarbageOptions",
    "LogRotationOptions",
    "NodeOptions",
    "OptionsError",
    "ServerOptions",
    "run_node",
]
