"""Subresources: parts of objects with their own path and rules."""

from moorage.apiserver.subresources.pods import PodSubresources
from moorage.apiserver.subresources.scale import ScaleSubresource
from moorage.apiserver.subresources.tokens import TokenSubresource

__all__ = ["PodSubresources", "ScaleSubresource", "TokenSubresource"]
