"""Rejections by the API server that are expected and not reported as failures."""

from __future__ import annotations

from moorage.api.errors import StatusError

NAMESPACE_TERMINATING = "NamespaceTerminating"


def is_namespace_ending(error: Exception) -> bool:
    """Return whether a creation failed, for good, because the namespace is terminating."""
    if not isinstance(error, StatusError):
        return False
    causes = (error.details or {}).get("causes") or ()
    return any(cause.get("reason") == NAMESPACE_TERMINATING for cause in causes)
