"""Rights that are asked for before anything is changed, as tables.

test_needed_rights.py compares them with what a real API server is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from moorage.attach.manifests.identity import Obj
from moorage.attach.needed_rights import Right, attach_rights, detach_rights, look_rights
from moorage.attach.values import CERT_MANAGER, Values
from moorage.wire.client.resources import CONFIG_MAPS, DAEMON_SETS, NAMESPACES, SECRETS, Resource

_SERVED: Mapping[tuple[str, str], Resource[Any]] = {
    ("v1", "Namespace"): NAMESPACES, ("v1", "ConfigMap"): CONFIG_MAPS,
    ("v1", "Secret"): SECRETS, ("apps/v1", "DaemonSet"): DAEMON_SETS,
}  # fmt: skip
_FOLLOWED = ("apps deployments", "apps daemonsets", "pods", "events")
_MARKED = (
    "namespaces", "nodes", "pods", "apps deployments", "apps statefulsets", "apps daemonsets",
    "batch cronjobs", "apps replicasets",
)  # fmt: skip
_TEMPLATES = (
    "replicationcontrollers", "podtemplates", "apps replicasets", "apps deployments",
    "apps statefulsets", "apps daemonsets", "batch jobs", "batch cronjobs",
)  # fmt: skip
_GROUP = "runtime.moorage.dev"
_OF_USERS = tuple(
    f"{_GROUP} {plural}"
    for plural in ("clusterruntimepolicies", "runtimeclassquotas", "runtimeinstallations",
                   "runtimepolicies", "runtimeprofiles", "runtimerollouts")
)  # fmt: skip
_CLASSES, _DEFINITIONS = "node.k8s.io runtimeclasses", (
    "apiextensions.k8s.io customresourcedefinitions"
)  # fmt: skip


def obj(kind: str, namespace: str = "") -> Obj:
    version = "apps/v1" if kind == "DaemonSet" else "v1"
    place = {"namespace": namespace} if namespace else {}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": kind.lower(), **place}}


def said(rights: Iterable[Right]) -> list[str]:
    """Return rights as `VERB [GROUP] RESOURCE [in NAMESPACE] [of NAMES]`, sorted."""
    return sorted(
        " ".join(
            filter(
                None,
                (
                    right.verb,
                    right.group,
                    right.resource,
                    right.namespace and f"in {right.namespace}",
                    f"of {','.join(right.names)}" if right.names else "",
                ),
            )
        )
        for right in rights
    )


def each(verbs: str, resources: Iterable[str], after: str = "") -> list[str]:
    return [f"{verb} {resource}{after}" for resource in resources for verb in verbs.split()]


@pytest.mark.parametrize("values", [Values(), Values(certificates=CERT_MANAGER, namespace="ns")])
def test_an_attachment_reads_applies_and_follows(values: Values) -> None:
    place = values.namespace
    secret = [f"get secrets in {place} of moorage-webhook-tls"]
    wanted = [obj("Namespace"), obj("ConfigMap", "other"), obj("Unserved")]
    assert said(attach_rights(values, wanted, _SERVED)) == sorted(
        [
            *each("create", ["namespaces", "configmaps in other"]),
            f"get namespaces of {','.join(sorted((place, 'namespace')))}",
            *each("patch", ["namespaces of namespace"]),
            *each("get patch", ["configmaps in other of configmap"]),
            *each("list", ["namespaces", "configmaps", "secrets", "apps daemonsets"]),
            *each("list", ["nodes", "pods", _CLASSES]),
            *each("list watch", [_DEFINITIONS, f"{_GROUP} runtimeprofiles"]),
            *each("list watch", _FOLLOWED, f" in {place}"),
            *(secret if values.certificates != CERT_MANAGER else []),
        ]
    )


def test_a_detachment_lists_what_is_ours_and_what_is_marked() -> None:
    kinds = ["namespaces", "configmaps", "secrets", "apps daemonsets"]
    others = dict.fromkeys((*_MARKED, *_TEMPLATES, _CLASSES, *_OF_USERS))
    assert said(look_rights(_SERVED)) == sorted([*each("list", kinds), *each("list", others)])


def test_a_detachment_removes_what_it_found_and_all_traces() -> None:
    found = [
        obj("ConfigMap", "a"), obj("DaemonSet", "c"), obj("DaemonSet", "b"), obj("Namespace"),
    ]  # fmt: skip
    assert said(detach_rights(found, [obj("Secret", "d")], _SERVED)) == sorted(
        [
            "delete configmaps in a of configmap",
            "delete apps daemonsets in b of daemonset",
            "delete apps daemonsets in c of daemonset",
            "delete namespaces of namespace",
            "delete secrets in d of secret",
            *each("list watch", ["namespaces", _DEFINITIONS, f"{_GROUP} runtimeinstallations"]),
            *each("patch", [*_MARKED, _CLASSES, *_OF_USERS, "nodes/status", "pods/status"]),
            "get pods",
            *each("delete", [_CLASSES, f"{_GROUP} runtimeinstallations"]),
            *each("list watch", _FOLLOWED, " in b"),
            *each("list watch", _FOLLOWED, " in c"),
        ]
    )
