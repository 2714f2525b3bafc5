"""API discovery: the documents at `/api` and `/apis`."""

from moorage.apiserver.discovery.handler import DiscoveryHandler

__all__ = ["DiscoveryHandler"]
