"""Errors of an attachment that a user can act on."""

from __future__ import annotations

from moorage.cluster.errors import ClusterError


class AttachError(ClusterError):
    """An attachment or detachment cannot be done, or was not done in time."""


class ValuesError(AttachError):
    """Values that cannot be used; the text names the field."""
