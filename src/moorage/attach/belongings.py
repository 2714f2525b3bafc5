"""Belongings of an attachment: which of the objects with its labels are really its own.

Anyone may label an object as part of Moorage; what is removed must have been made by an attachment:
it was applied by `moor attach`, or has the kind and name of one of its objects, as those have that
Helm or kubectl installed. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from moorage.attach.changes import is_attached
from moorage.attach.manifests import WORKLOADS, objects
from moorage.attach.manifests.controllers import LEASE
from moorage.attach.manifests.identity import MOORAGE, NAME_LABEL, PART_OF_LABEL, Obj
from moorage.attach.manifests.webhook import SECRET
from moorage.attach.values import CERT_MANAGER, SchedulerValues, Values

_NAMESPACE = "Namespace"
_CLUSTER_BINDING = "ClusterRoleBinding"


@cache
def _made() -> frozenset[tuple[str, str]]:
    """Return kind and name of all that any values ask for, and of what the parts make."""
    choices = (Values(), Values(certificates=CERT_MANAGER, scheduler=SchedulerValues(enabled=True)))
    asked = {(obj["kind"], obj["metadata"]["name"]) for one in choices for obj in objects(one)}
    return frozenset(asked | {("Secret", SECRET), ("Lease", LEASE)})


def is_labelled(obj: Obj) -> bool:
    """Return whether an object has the labels that an attachment gives all of its objects."""
    labels = obj["metadata"].get("labels") or {}
    return labels.get(PART_OF_LABEL) == labels.get(NAME_LABEL) == MOORAGE


def has_name_of_ours(kind: str, name: str) -> bool:
    """Return whether an attachment, or a part of it, makes an object of this kind and name."""
    return (kind, name) in _made()


def belongings(labelled: Iterable[Obj]) -> tuple[list[Obj], list[Obj]]:
    """Return those of the labelled objects that an attachment made, and the others.

    A namespace of another name than the usual one is its own where a part of it runs there. A
    part runs where its rights are bound, which users of another namespace cannot pretend.
    """
    labelled = list(labelled)
    ours = [obj for obj in labelled if _is_ours(obj)]
    places = _places(ours)
    if homes := _homes(ours):
        places &= homes
    own: list[Obj] = []
    others: list[Obj] = []
    for obj in labelled:
        kind, metadata = obj["kind"], obj["metadata"]
        if kind == _NAMESPACE and metadata["name"] in places:
            is_own = is_labelled(obj)
        else:
            is_stray = kind in WORKLOADS and metadata.get("namespace", "") not in places
            is_own = _is_ours(obj) and not is_stray
        (own if is_own else others).append(obj)
    return own, others


def _is_ours(obj: Obj) -> bool:
    return is_labelled(obj) and (
        is_attached(obj) or (obj["kind"], obj["metadata"]["name"]) in _made()
    )


def _homes(ours: Sequence[Obj]) -> set[str]:
    """Return the namespaces of the accounts that have rights on the whole cluster.

    None where their bindings were deleted, before the workloads, by hand.
    """
    return {
        subject["namespace"]
        for obj in ours
        if obj["kind"] == _CLUSTER_BINDING
        for subject in obj.get("subjects") or ()
        if subject.get("namespace")
    }


def _places(ours: Sequence[Obj]) -> set[str]:
    return {obj["metadata"].get("namespace", "") for obj in ours if obj["kind"] in WORKLOADS}
