"""Subresources: parts of objects with their own path and rules."""

from moorage.apiserver.subresources.binding import BindingSubresource
from moorage.apiserver.subresources.eviction import EvictionSubresource
from moorage.apiserver.subresources.scale import ScaleSubresource
from moorage.apiserver.subresources.tokens import TokenSubresource

__all__ = ["BindingSubresource", "EvictionSubresource", "ScaleSubresource", "TokenSubresource"]
