"""Pod networks: CNI configuration, plugin execution, and a pool of warm networks."""

from moorage.engine.networks.conflist import Conflist, ConflistError, read_conflist
from moorage.engine.networks.plugins import CniError, CniResult, Plugins, RuntimeConf
from moorage.engine.networks.pool import NetworkPool

__all__ = [
    "CniError",
    "CniResult",
    "Conflist",
    "ConflistError",
    "NetworkPool",
    "Plugins",
    "RuntimeConf",
    "read_conflist",
]
