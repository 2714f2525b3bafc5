"""The API's types, loaded once, and short ways to patch objects of them."""

from __future__ import annotations

from typing import Any

from moorage.apiserver.registry.patch import MergeSchema, strategic_merge
from moorage.apiserver.registry.schema import load_schema

Map = dict[str, Any]

SCHEMA = load_schema()
TOPOLOGY = MergeSchema(SCHEMA)

POD = "io.k8s.api.core.v1.Pod"
POD_SPEC = "io.k8s.api.core.v1.PodSpec"
CONFIG_MAP = "io.k8s.api.core.v1.ConfigMap"
SERVICE = "io.k8s.api.core.v1.Service"
DEPLOYMENT = "io.k8s.api.apps.v1.Deployment"
RUNTIME_CLASS = "io.k8s.api.node.v1.RuntimeClass"


def strategic(type_name: str, original: Map, patch: Map) -> Map:
    return strategic_merge(SCHEMA, type_name, original, patch)
