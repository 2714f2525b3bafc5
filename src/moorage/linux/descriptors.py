"""Limit of open descriptors of this process. Source: getrlimit(2)."""

from __future__ import annotations

import resource


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open descriptors to the hard one. Returns the new limit.

    Not for processes that start containers: those inherit it, and programs that close every
    descriptor up to the limit take minutes for that.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def descriptor_limit() -> int:
    """Return the current limit of open descriptors."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
