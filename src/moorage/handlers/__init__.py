"""Runtime handlers: which there are on a machine, whether they work, and what they can do."""

from moorage.handlers.availability import Containerd, Machine
from moorage.handlers.discovery import Handler, discover, find_containerd, search_path
from moorage.handlers.features import HandlerFeatures
from moorage.handlers.runtimes import KNOWN_RUNTIMES, Runtime
from moorage.handlers.tables import NoHandlerError, default_handler, runtime_tables

__all__ = [
    "KNOWN_RUNTIMES",
    "Containerd",
    "Handler",
    "HandlerFeatures",
    "Machine",
    "NoHandlerError",
    "Runtime",
    "default_handler",
    "discover",
    "find_containerd",
    "runtime_tables",
    "search_path",
]
