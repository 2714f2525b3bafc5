"""Refusals that are no failures."""

from __future__ import annotations

from moorage.api.errors import StatusError

NAMESPACE_TERMINATING = "NamespaceTerminating"


def is_namespace_ending(error: Exception) -> bool:
    """Whether a creation was refused because the namespace is being deleted: it never succeeds."""
    if not isinstance(error, StatusError):
        return False
    causes = (error.details or {}).get("causes") or ()
    return any(cause.get("reason") == NAMESPACE_TERMINATING for cause in causes)
