"""Errors of installing runtimes."""

from __future__ import annotations

from moorage.cluster.errors import ClusterError


class RuntimeInstallationError(ClusterError):
    """A runtime was not installed, upgraded or removed; what was there before is as before."""
