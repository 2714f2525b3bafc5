"""OpenAPI documents of the API: generated at build time, read on request."""

from moorage.apiserver.registry.openapi.documents import Document, Documents

__all__ = ["Document", "Documents"]
