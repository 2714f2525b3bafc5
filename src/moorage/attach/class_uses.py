"""Uses of classes: the pods and the pod templates that name each one.

A template at rest counts too: a CronJob between two runs or a Deployment scaled to nothing needs
its class again. A finished Job does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from moorage.api.counted import counted
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
