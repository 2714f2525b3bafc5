"""Conversion between extensions/v1beta1 Deployments and apps/v1.

The only field apps/v1 lacks, `rollbackTo`, is kept as the annotation that upstream uses for it.
Source: extensions/v1beta1 of Kubernetes 1.2 to 1.15.
"""

from __future__ import annotations

import re

from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.deployment.defaults import default_extensions_deployment

ROLLBACK_ANNOTATION = "deprecated.deployment.rollback.to"
_REVISION = re.compile(r"0|-?[1-9][0-9]{0,17}")


def from_extensions(obj: Obj) -> Obj:
    """Convert from extensions/v1beta1."""
    converted = {**obj, "spec": dict(obj["spec"])}
    default_extensions_deployment(converted)
    rollback = converted["spec"].pop("rollbackTo", None)
    if rollback is not None:
        metadata = dict(converted["metadata"])
        annotations = dict(metadata.get("annotations", {}))
        annotations[ROLLBACK_ANNOTATION] = str(rollback.get("revision", 0))
        converted["metadata"] = {**metadata, "annotations": annotations}
    return converted


def to_extensions(obj: Obj) -> Obj:
    """Convert to extensions/v1beta1."""
    annotations = obj["metadata"].get("annotations", {})
    # A value of another origin is no revision and stays as it is.
    if not _REVISION.fullmatch(annotations.get(ROLLBACK_ANNOTATION, "")):
        return obj
    kept = {key: value for key, value in annotations.items() if key != ROLLBACK_ANNOTATION}
    metadata = {**obj["metadata"], "annotations": kept}
    if not kept:
        del metadata["annotations"]
    revision = int(annotations[ROLLBACK_ANNOTATION])
    rollback = {"revision": revision} if revision else {}
    return {**obj, "metadata": metadata, "spec": {**obj["spec"], "rollbackTo": rollback}}
