"""What the server serves, in the words of `/api` and `/apis`."""

from moorage.apiserver.discovery.handler import DiscoveryHandler

__all__ = ["DiscoveryHandler"]
