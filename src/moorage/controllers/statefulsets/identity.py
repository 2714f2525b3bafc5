"""Identity of a StatefulSet's pods: ordinals, names, labels, and the pod that has them.

Source: API docs "Pod Identity", KEP-3335 (start ordinal), `stateful_set_utils`.
"""

from __future__ import annotations

import re
from typing import Any

from moorage.api.meta import ObjectMeta, Raw
from moorage.api.workloads import StatefulSet
from moorage.controllers.pod_requests import pod_of
from moorage.wire.client.resources import STATEFUL_SETS

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
