"""Identity of the add-on's objects: names, labels, accounts and roles of its parts."""

from __future__ import annotations

from collections.abc import Sequence

from moorage import __version__
from moorage.api.meta import Raw
from moorage.attach.values import Values

Obj = Raw
"""A Kubernetes object as it is sent."""

NAME_LABEL = "app.kubernetes.io/name"
PART_OF_LABEL = "app.kubernetes.io/part-of"
COMPONENT_LABEL = "app.kubernetes.io/component"
VERSION_LABEL = "app.kubernetes.io/version"
MOORAGE = "moorage"
OURS = f"{PART_OF_LABEL}={MOORAGE}"
"""Selector of all objects of an attachment."""

WEBHOOK, CONTROLLERS, RUNTIME_AGENT, SCHEDULER, UI = (
    "webhook", "controllers", "runtime-agent", "scheduler", "ui",
)  # fmt: skip
_RBAC = "rbac.authorization.k8s.io"


def part_name(component: str) -> str:
    """Return the name of a part's objects: account, roles, workload."""
    return f"{MOORAGE}-{component}"


def labels(component: str = "") -> dict[str, str]:
    """Return the labels of an object, of a part if one is given."""
    common = {PART_OF_LABEL: MOORAGE, NAME_LABEL: MOORAGE}
    return common | ({COMPONENT_LABEL: component} if component else {})


TEST_POD = part_name("test-answers")
"""The pod of `helm test`, which stays when it failed."""


def selector(component: str) -> dict[str, str]:
    """Return the labels by which a part's pods are selected, which must never change."""
    return labels(component)


def metadata(name: str, component: str = "", *, namespace: str = "") -> Raw:
    """Return the metadata of an object, with a version label."""
    made: Raw = {"name": name}
    if namespace:
        made["namespace"] = namespace
    return made | {"labels": labels(component) | {VERSION_LABEL: __version__}}


FOLLOW = ["list", "watch"]
"""Verbs of an informer."""


def rule(group: str, resources: list[str], verbs: list[str], name: str = "") -> Raw:
    """Return a rule of a role: verbs on resources of one API group, or on one object of them."""
    made: Raw = {"apiGroups": [group], "resources": resources, "verbs": verbs}
    return made | ({"resourceNames": [name]} if name else {})


def account(values: Values, component: str) -> Obj:
    """Return a part's ServiceAccount."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(part_name(component), component, namespace=values.namespace),
    }


def cluster_role(values: Values, component: str, rules: Sequence[Raw]) -> list[Obj]:
    """Return a part's ClusterRole with these rules, and its binding to the part's account."""
    name = part_name(component)
    return [
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": metadata(name, component),
            "rules": list(rules),
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata(name, component),
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name},
            "subjects": [_subject(values, name)],
        },
    ]


def role(
    values: Values, component: str, rules: Sequence[Raw], *, namespace: str = "", suffix: str = ""
) -> list[Obj]:
    """Return a part's Role in a namespace, its own by default, and its binding."""
    account_name = part_name(component)
    name = account_name + suffix
    place = namespace or values.namespace
    return [
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "Role",
            "metadata": metadata(name, component, namespace=place),
            "rules": list(rules),
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata(name, component, namespace=place),
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": name},
            "subjects": [_subject(values, account_name)],
        },
    ]


def _subject(values: Values, name: str) -> Raw:
    return {"kind": "ServiceAccount", "name": name, "namespace": values.namespace}
