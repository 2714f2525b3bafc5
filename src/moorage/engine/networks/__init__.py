"""Sandboxes' networks: CNI plugins, what they answered, and networks made in advance."""

from moorage.engine.networks.conflist import Conflist, ConflistError, read_conflist
from moorage.engine.networks.plugins import Attachment, CniError, Plugins, Subject
from moorage.engine.networks.pool import NetworkPool

__all__ = [
    "Attachment",
    "CniError",
    "Conflist",
    "ConflistError",
    "NetworkPool",
    "Plugins",
    "Subject",
    "read_conflist",
]
