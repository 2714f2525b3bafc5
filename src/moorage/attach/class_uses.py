"""Uses of classes: the pods and the pod templates that name each one.

A template at rest counts too: a CronJob between two runs or a Deployment scaled to nothing needs
its class again. A finished Job does not.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

import msgspec

from moorage.api.text import counted
from moorage.attach.manifests import DEFINITION
from moorage.attach.manifests.identity import Obj
from moorage.attach.served_objects import ServedObjects, name_of
from moorage.runtimeclass.workloads import POD_PATHS, below
from moorage.runtimes.class_users import ClassUser, users_by_class
from moorage.wire.client.resources import (
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    POD_TEMPLATES,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
)

# Helm's releases among the objects of an attachment. Source: Helm docs, `meta.helm.sh`.

_NAME = "meta.helm.sh/release-name"
_NAMESPACE = "meta.helm.sh/release-namespace"


class Release(msgspec.Struct, frozen=True, order=True):
    """A release's name, and the namespace that has Helm's record of it."""

    name: str
    namespace: str

    @property
    def removal(self) -> str:
        """The command that removes the release and its record."""
        return shlex.join(("helm", "uninstall", self.name, "-n", self.namespace))


def is_of_release(obj: Obj) -> bool:
    """Return whether Helm installed an object."""
    return bool((obj["metadata"].get("annotations") or {}).get(_NAME))


def releases_of(objects: Iterable[Obj]) -> tuple[Release, ...]:
    """Return the releases that objects are of, sorted.

    Definitions are left out: Helm keeps them when it uninstalls, and no release is left then. So
    are objects of namespaces, whose users could name a release of others, to have it uninstalled.
    """
    releases = set()
    for obj in objects:
        is_of_cluster = not obj["metadata"].get("namespace") and obj["kind"] != DEFINITION
        if is_of_cluster and is_of_release(obj):
            annotations = obj["metadata"]["annotations"]
            releases.add(Release(annotations[_NAME], annotations.get(_NAMESPACE, "")))
    return tuple(sorted(releases))


TEMPLATE_RESOURCES = (
    REPLICATION_CONTROLLERS, POD_TEMPLATES, REPLICA_SETS, DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS,
    JOBS, CRON_JOBS,
)  # fmt: skip
"""What has pod templates."""
_SHOWN = 3
_OVER = frozenset({"Complete", "Failed"})


class ClassUses(msgspec.Struct, frozen=True):
    """What uses a class: how many pods, and the names of the objects whose template names it."""

    pods: int = 0
    templates: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.pods or self.templates)

    @property
    def sentence(self) -> str:
        """Return who uses it: `2 pods and the template of CronJob shop/nightly use it`."""
        parts = [counted(self.pods, "pod")] if self.pods else []
        if self.templates:
            more = len(self.templates) - _SHOWN
            names = ", ".join(self.templates[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
            parts.append(
                f"the {'template' if len(self.templates) == 1 else 'templates'} of {names}"
            )
        verb = "uses" if self.pods + len(self.templates) == 1 else "use"
        return f"{' and '.join(parts)} {verb} it"


async def class_uses(served: ServedObjects, pods: Iterable[ClassUser]) -> Mapping[str, ClassUses]:
    """Return the uses of each class that is used. Raises StatusError, UnreachableError."""
    counts = users_by_class(pods)
    templates: dict[str, list[str]] = {}
    for resource in TEMPLATE_RESOURCES:
        version = f"{resource.group}/{resource.version}".lstrip("/")
        async for obj in served.list(version, resource.kind):
            if name := class_of_template(obj):
                templates.setdefault(name, []).append(name_of(obj))
    return {
        name: ClassUses(counts[name], tuple(templates.get(name, ())))
        for name in counts.keys() | templates.keys()
    }


def class_of_template(obj: Obj) -> str:
    """Return the class that an object's pods will have; empty for none, or for a finished Job."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    if obj["kind"] == "Job" and any(
        one.get("type") in _OVER and one.get("status") == "True" for one in conditions
    ):
        return ""
    spec = below(obj, (*POD_PATHS[obj["kind"]], "spec")) or {}
    return str(spec.get("runtimeClassName") or "")
