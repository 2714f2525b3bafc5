"""Protection of one object: whether its finalizer is to be added or removed."""

from __future__ import annotations

from moorage.api.meta import ObjectMeta


def is_leaving(meta: ObjectMeta, finalizer: str) -> bool:
    """Return whether an object waits for its finalizer alone or among others to be removed."""
    return meta.deletion_timestamp is not None and finalizer in meta.finalizers


def is_unprotected(meta: ObjectMeta, finalizer: str) -> bool:
    """Return whether an object lacks its finalizer: it is older than the admission plugin."""
    return meta.deletion_timestamp is None and finalizer not in meta.finalizers


def needs_work(meta: ObjectMeta, finalizer: str) -> bool:
    """Return whether the finalizer is to be added, or perhaps removed."""
    return is_leaving(meta, finalizer) or is_unprotected(meta, finalizer)
