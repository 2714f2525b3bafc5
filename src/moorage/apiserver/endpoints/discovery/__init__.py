"""API discovery: the documents at `/api` and `/apis`."""

from moorage.apiserver.endpoints.discovery.handler import DiscoveryHandler

__all__ = ["DiscoveryHandler"]
