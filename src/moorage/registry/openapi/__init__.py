"""The API described in OpenAPI: written when Moorage is built, read when somebody asks."""

from moorage.registry.openapi.documents import Document, Documents

__all__ = ["Document", "Documents"]
