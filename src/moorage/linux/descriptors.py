"""How many descriptors this process may open. Source: getrlimit(2)."""

from __future__ import annotations

import resource


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open descriptors to the hard one. Returns the limit that holds now.

    Not for processes that start containers: those would inherit it, and programs that close every
    descriptor up to the limit take minutes for that.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def descriptor_limit() -> int:
    """Return how many descriptors this process may open now."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
