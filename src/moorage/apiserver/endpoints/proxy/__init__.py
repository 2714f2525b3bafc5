"""Proxy subresources: HTTP requests passed on to nodes, pods and the pods behind services."""

from moorage.apiserver.endpoints.proxy.forward import Proxy

__all__ = ["Proxy"]
