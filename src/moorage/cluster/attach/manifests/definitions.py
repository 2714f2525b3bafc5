"""Definitions of runtime.moorage.dev among the objects of an attachment."""

from __future__ import annotations

from moorage.cluster.attach.manifests.identity import Obj
from moorage.cluster.attach.values import Values
from moorage.custom_resources import definitions


def objects(values: Values) -> list[Obj]:
    """Return all CustomResourceDefinitions of the group, which are shared, not copied."""
    del values
    return list(definitions())
