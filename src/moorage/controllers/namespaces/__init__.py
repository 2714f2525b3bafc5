"""Namespace deletion: everything inside goes first."""

from moorage.controllers.namespaces.controller import NamespaceController

__all__ = ["NamespaceController"]
