"""What the server serves, in the words of `/api` and `/apis`."""

from moorage.apiserver.discovery.pages import DiscoveryPages

__all__ = ["DiscoveryPages"]
