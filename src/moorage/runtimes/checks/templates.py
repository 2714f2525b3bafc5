"""Pod templates in objects: at their place in the kinds of Kubernetes, by shape in all others.

Custom resources wrap pods too (Argo, Knative, JobSet, Kubeflow, agent-sandbox, Volcano), each at a
place of its own. What has a `spec` with a list of containers is a template, and what has a
`runtimeClassName` without one, as Tekton's and Spark's do, names a class at least.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from moorage.runtimeclass.demands import Path
from moorage.runtimeclass.workloads import POD_PATHS, below

CLASS_FIELD = "runtimeClassName"
_GROUPS = ("", "apps", "batch", "extensions")
_MOST = 1000
"""Templates of an object that are looked at."""


class Template(msgspec.Struct, frozen=True):
    """A pod, or what pods are made of, at a path of an object.

    `has_containers`: it is a whole template. Otherwise `value` has the name of a class alone.
    """

    path: Path
    value: dict[str, Any]
    has_containers: bool = True


def templates_of(obj: dict[str, Any]) -> list[Template]:
    """Return the templates of an object, one without a specification for a broken workload."""
    kind, version = obj.get("kind"), obj.get("apiVersion")
    group = version.rpartition("/")[0] if isinstance(version, str) else ""
    if isinstance(kind, str) and kind in POD_PATHS and group in _GROUPS:
        at = POD_PATHS[kind]
        return [Template(at, below(obj, at) or {})]
    found = []
    for template in _by_shape(obj):
        found.append(template)
        if len(found) == _MOST:
            break
    return found


def _by_shape(obj: dict[str, Any]) -> Iterator[Template]:
    """Yield templates from the top down; nothing below one is looked at."""
    pending: list[tuple[Path, Any]] = [((), obj)]
    while pending:
        path, value = pending.pop()
        if isinstance(value, list):
            pending += [((*path, index), item) for index, item in reversed([*enumerate(value)])]
        elif isinstance(value, dict):
            if _has_containers(value.get("spec")):
                yield Template(path, value)
                continue
            if isinstance(value.get(CLASS_FIELD), str):
                yield Template(path, value, has_containers=False)
            pending += [((*path, key), item) for key, item in reversed([*value.items()])]


def _has_containers(spec: Any) -> bool:
    containers = spec.get("containers") if isinstance(spec, dict) else None
    return (
        isinstance(containers, list)
        and bool(containers)
        and all(isinstance(one, dict) and ("image" in one or "name" in one) for one in containers)
    )
