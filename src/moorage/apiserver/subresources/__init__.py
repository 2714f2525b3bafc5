"""Parts of objects that have a path and rules of their own."""

from moorage.apiserver.subresources.pods import PodSubresources
from moorage.apiserver.subresources.scale import ScaleSubresource
from moorage.apiserver.subresources.tokens import TokenSubresource

__all__ = ["PodSubresources", "ScaleSubresource", "TokenSubresource"]
