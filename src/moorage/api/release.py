"""Kubernetes release: the version whose API, defaults and messages every part follows."""

from __future__ import annotations

KUBERNETES = "1.37.0"
"""The version of the served API, of the published schemas and of the node."""

MAJOR, MINOR, _ = KUBERNETES.split(".")
