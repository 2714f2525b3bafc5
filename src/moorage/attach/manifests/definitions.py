"""Definitions of runtime.moorage.dev among the objects of an attachment."""

from __future__ import annotations

from moorage.attach.manifests.identity import Obj
from moorage.attach.values import Values
from moorage.runtimes.custom_resources import definitions


def objects(values: Values) -> list[Obj]:
    """Return all CustomResourceDefinitions of the group, which are shared, not copied."""
    del values
    return list(definitions())
