"""Subresources: parts of objects with their own path and rules."""

from moorage.apiserver.endpoints.subresources.eviction import EvictionSubresource
from moorage.apiserver.endpoints.subresources.scale import ScaleSubresource
from moorage.apiserver.endpoints.subresources.tokens import BindingSubresource, TokenSubresource

__all__ = ["BindingSubresource", "EvictionSubresource", "ScaleSubresource", "TokenSubresource"]
