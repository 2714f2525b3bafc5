"""Namespace deletion: all content is deleted before the namespace."""

from moorage.controllers.namespaces.controller import NamespaceController

__all__ = ["NamespaceController"]
