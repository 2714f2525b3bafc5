"""Plan of a StatefulSet: which pods to create, delete, replace or repair now.

Under OrderedReady a pod is touched only when all before it are available, and one at a time; under
Parallel all are touched at once, and only the replacement of old pods is limited. Source: API docs
"Deployment and Scaling Guarantees", "Update strategies", `stateful_set_control`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from moorage.api.meta import ObjectMeta, Raw
from moorage.api.workloads import StatefulSet
from moorage.controllers.objects import Pod
from moorage.controllers.pods import (
    is_deleting,
    is_ended,
    is_ready,
    pod_of,
    seconds_until_available,
)
from moorage.controllers.templates import scaled
from moorage.wire.client.resources import STATEFUL_SETS

# Identity of a StatefulSet's pods: ordinals, names, labels, and the pod that has them.
#
# Source: API docs "Pod Identity", KEP-3335 (start ordinal), `stateful_set_utils`.

POD_NAME = "statefulset.kubernetes.io/pod-name"
POD_INDEX = "apps.kubernetes.io/pod-index"
REVISION = "controller-revision-hash"

_NUMBERED = re.compile(r"(.*)-([0-9]+)", re.DOTALL)
_ORDINAL_LIMIT = 2**31


def parent_and_ordinal(name: str) -> tuple[str, int | None]:
    """Split `PARENT-ORDINAL`. Returns no ordinal where the name has none of 31 bits."""
    match = _NUMBERED.fullmatch(name)
    if match is None:
        return "", None
    ordinal = int(match[2])
    return match[1], ordinal if ordinal < _ORDINAL_LIMIT else None


def ordinal_of(meta: ObjectMeta) -> int | None:
    return parent_and_ordinal(meta.name)[1]


def is_member(stateful_set: StatefulSet, meta: ObjectMeta) -> bool:
    """Return whether the object's name is one that the set gives."""
    return parent_and_ordinal(meta.name)[0] == stateful_set.metadata.name


def replicas_of(stateful_set: StatefulSet) -> int:
    """Return the desired number of pods, 1 by default."""
    replicas = stateful_set.spec.replicas
    return 1 if replicas is None else replicas


def ordinals_of(stateful_set: StatefulSet) -> range:
    """Return the ordinals that the set should have pods of."""
    start = stateful_set.spec.ordinals.start
    return range(start, start + replicas_of(stateful_set))


def pod_name(stateful_set: StatefulSet, ordinal: int) -> str:
    return f"{stateful_set.metadata.name}-{ordinal}"


def claim_name(template: str, stateful_set: StatefulSet, ordinal: int) -> str:
    """Return the name of the claim of a claim template for the pod with an ordinal."""
    return f"{template}-{stateful_set.metadata.name}-{ordinal}"


def claim_templates(stateful_set: StatefulSet) -> dict[str, Raw]:
    """Return the claim templates by name."""
    return {
        (template.get("metadata") or {}).get("name", ""): template
        for template in stateful_set.spec.volume_claim_templates
    }


def identity_labels(name: str, ordinal: int) -> dict[str, str]:
    return {POD_NAME: name, POD_INDEX: str(ordinal)}


def member_pod(
    stateful_set: StatefulSet, template: Raw, ordinal: int, revision: str
) -> dict[str, Any]:
    """Return the set's pod with an ordinal, as JSON, of a template and its revision's name."""
    name = pod_name(stateful_set, ordinal)
    pod = pod_of(STATEFUL_SETS, stateful_set.metadata, template)
    meta, spec = pod["metadata"], pod["spec"]
    labels = {**meta.get("labels", {}), **identity_labels(name, ordinal), REVISION: revision}
    return {
        "metadata": {**meta, "name": name, "labels": labels},
        "spec": {
            **spec,
            "hostname": name,
            "subdomain": stateful_set.spec.service_name,
            "volumes": _volumes(stateful_set, spec.get("volumes") or (), ordinal),
        },
    }


def _volumes(stateful_set: StatefulSet, volumes: Any, ordinal: int) -> list[Raw]:
    """Return a volume for each claim, then the template's own that no claim replaces."""
    templates = claim_templates(stateful_set)
    claims = [
        {
            "name": template,
            "persistentVolumeClaim": {"claimName": claim_name(template, stateful_set, ordinal)},
        }
        for template in templates
    ]
    return [*claims, *(volume for volume in volumes if volume.get("name") not in templates)]


_PARALLEL = "Parallel"
_ROLLING_UPDATE = "RollingUpdate"


@dataclass(frozen=True, slots=True)
class Plan:
    """What one reconcile does: each pod is in at most one of creations, deletions, replaced.

    `creations` are ordinals. `deletions` ended or are surplus, `replaced` have an old template.
    `pending` may lack claims, `established` may lack labels or have claims of the wrong owner.
    """

    creations: tuple[int, ...] = ()
    deletions: tuple[Pod, ...] = ()
    replaced: tuple[Pod, ...] = ()
    pending: tuple[Pod, ...] = ()
    established: tuple[Pod, ...] = ()


@dataclass(frozen=True, slots=True)
class Members:
    """The pods by ordinal, None where one is missing, and those to scale away, highest first."""

    replicas: dict[int, Pod | None]
    condemned: tuple[Pod, ...]


def sort_members(stateful_set: StatefulSet, pods: Iterable[Pod]) -> Members:
    """Divide the set's pods by whether their ordinal is wanted."""
    replicas: dict[int, Pod | None] = dict.fromkeys(ordinals_of(stateful_set))
    condemned: list[tuple[int, Pod]] = []
    for pod in pods:
        ordinal = ordinal_of(pod.metadata)
        if ordinal in replicas:
            replicas[ordinal] = pod
        elif ordinal is not None:
            condemned.append((ordinal, pod))
    condemned.sort(key=lambda numbered: -numbered[0])
    return Members(replicas, tuple(pod for _, pod in condemned))


def make_plan(
    stateful_set: StatefulSet,
    members: Members,
    update: str,
    blocked: Collection[int],
    now: datetime,
) -> Plan:
    """Decide the next step. `update` is the newest revision's name.

    `blocked` are the ordinals that cannot be created yet, as their claims are about to go.
    """
    if stateful_set.spec.pod_management_policy == _PARALLEL:
        return _parallel_plan(stateful_set, members, update, blocked, now)
    return _ordered_plan(stateful_set, members, update, blocked, now)


def uses_current(stateful_set: StatefulSet, ordinal: int) -> bool:
    """Return whether a missing pod is created from the current template, not from the newest."""
    spec = stateful_set.spec
    rolling = spec.update_strategy.rolling_update
    if rolling is not None:
        kept = rolling.partition or 0
    elif spec.update_strategy.type == _ROLLING_UPDATE:
        kept = stateful_set.status.current_replicas
    else:
        kept = 0
    return ordinal < spec.ordinals.start + kept


def max_unavailable(stateful_set: StatefulSet) -> int:
    """Return how many pods a rolling update may make unavailable: at least 1."""
    rolling = stateful_set.spec.update_strategy.rolling_update
    if rolling is None or rolling.max_unavailable is None:
        return 1
    return max(1, scaled(rolling.max_unavailable, replicas_of(stateful_set), rounds_up=False))


def is_available(pod: Pod, min_ready_s: int, now: datetime) -> bool:
    return seconds_until_available(pod, min_ready_s, now) == 0


def _ordered_plan(
    stateful_set: StatefulSet,
    members: Members,
    update: str,
    blocked: Collection[int],
    now: datetime,
) -> Plan:
    min_ready_s = stateful_set.spec.min_ready_seconds
    pending: list[Pod] = []
    established: list[Pod] = []

    def plan(
        creations: Sequence[int] = (), deletions: Sequence[Pod] = (), replaced: Sequence[Pod] = ()
    ) -> Plan:
        return Plan(
            tuple(creations), tuple(deletions), tuple(replaced), tuple(pending), tuple(established)
        )

    for ordinal, pod in members.replicas.items():
        if pod is None:
            return plan(creations=[ordinal] if ordinal not in blocked else [])
        if is_ended(pod):
            return plan(deletions=[pod] if not is_deleting(pod) else [])
        if pod.status.phase == "Pending":
            pending.append(pod)
        if not _is_steady(pod, min_ready_s, now):
            return plan()
        established.append(pod)
    established += members.condemned
    if members.condemned:
        return plan(deletions=_next_condemned(members.condemned, min_ready_s, now))
    return plan(replaced=_replaced(stateful_set, members, update, now))


def _next_condemned(condemned: Sequence[Pod], min_ready_s: int, now: datetime) -> list[Pod]:
    """Return the pod to scale away next, if none is on its way out and the others are well."""
    last = condemned[0]
    unwell = [
        pod for pod in condemned if is_deleting(pod) or not is_available(pod, min_ready_s, now)
    ]
    may_go = _is_steady(last, min_ready_s, now) or (bool(unwell) and last is unwell[-1])
    return [last] if may_go and not is_deleting(last) else []


def _parallel_plan(
    stateful_set: StatefulSet,
    members: Members,
    update: str,
    blocked: Collection[int],
    now: datetime,
) -> Plan:
    pods = [pod for pod in members.replicas.values() if pod is not None]
    running = [pod for pod in pods if not is_ended(pod)]
    surplus = [*(pod for pod in pods if is_ended(pod)), *members.condemned]
    missing = (ordinal for ordinal, pod in members.replicas.items() if pod is None)
    return Plan(
        creations=tuple(ordinal for ordinal in missing if ordinal not in blocked),
        deletions=tuple(pod for pod in surplus if not is_deleting(pod)),
        replaced=tuple(_replaced(stateful_set, members, update, now)),
        pending=tuple(pod for pod in running if pod.status.phase == "Pending"),
        established=(*running, *members.condemned),
    )


def _replaced(stateful_set: StatefulSet, members: Members, update: str, now: datetime) -> list[Pod]:
    """Return the pods that a rolling update deletes now, so that the newest template follows.

    Old pods that are unavailable anyway go first and cost nothing; then as many others, from the
    highest ordinal down to the partition, as maxUnavailable leaves.
    """
    strategy = stateful_set.spec.update_strategy
    if strategy.type not in ("", _ROLLING_UPDATE):
        return []
    min_ready_s = stateful_set.spec.min_ready_seconds
    pods = list(members.replicas.values())
    partition = (strategy.rolling_update.partition or 0) if strategy.rolling_update else 0
    old = [
        pod
        for pod in reversed(pods[partition:])
        if pod is not None
        and pod.metadata.labels.get(REVISION) != update
        and not is_deleting(pod)
        and not is_ended(pod)
    ]
    unavailable = sum(
        pod is None or is_deleting(pod) or not is_available(pod, min_ready_s, now) for pod in pods
    )
    useless = [pod for pod in old if not is_available(pod, min_ready_s, now)]
    useful = [pod for pod in old if is_available(pod, min_ready_s, now)]
    budget = max(0, max_unavailable(stateful_set) - unavailable)
    return [*useless, *useful[:budget]]


def _is_steady(pod: Pod, min_ready_s: int, now: datetime) -> bool:
    return (
        pod.status.phase == "Running"
        and is_ready(pod)
        and is_available(pod, min_ready_s, now)
        and not is_deleting(pod)
    )
