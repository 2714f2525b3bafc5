"""What the server serves, in the words of `/api` and `/apis`."""

from moorage.apiserver.discovery.handler import DiscoveryPages

__all__ = ["DiscoveryPages"]
