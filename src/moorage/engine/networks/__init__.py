"""Sandboxes' networks: CNI plugins, what they answered, and networks made in advance."""

from moorage.engine.networks.conflist import Conflist, ConflistError, read_conflist
from moorage.engine.networks.plugins import CniError, CniResult, Plugins, Subject
from moorage.engine.networks.pool import NetworkPool

__all__ = [
    "CniError",
    "CniResult",
    "Conflist",
    "ConflistError",
    "NetworkPool",
    "Plugins",
    "Subject",
    "read_conflist",
]
