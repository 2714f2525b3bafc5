"""Which writes the rules and selectors of a policy select."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.admission.matching import matched_version, namespace_of
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds import STORED_KINDS
from moorage.apiserver.registry.request import Attributes, Request, User

KINDS = {kind.name: kind for kind in STORED_KINDS}
LABELS = {"default": {"team": "a"}, "other": {"team": "b"}}


def write(
    kind: str = "Pod",
    operation: str = "CREATE",
    *,
    version: str = "",
    group: str | None = None,
    namespace: str = "default",
    name: str = "x",
    subresource: str = "",
    labels: Any = None,
    old: Obj | None = None,
) -> Attributes:
    declared = KINDS[kind]
    served = next(
        one for one in declared.served
        if version in ("", one.version) and group in (None, one.group)
    )  # fmt: skip
    return Attributes(
        request=Request(user=User("alice")), operation=operation, kind=declared, served=served,
        namespace=namespace if declared.is_namespaced else "", name=name,
        obj=None if operation == "DELETE" else {"metadata": {"name": name, "labels": labels or {}}},
        old=old, subresource=subresource,
    )  # fmt: skip


def rule(**changes: Any) -> dict[str, Any]:
    return {
        "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
        **changes,
    }  # fmt: skip


def selects(match: dict[str, Any], attributes: Attributes) -> bool:
    found = matched_version(match, attributes, lambda name: LABELS.get(name, {}))
    return found is not None


@pytest.mark.parametrize(
    ("changes", "attributes", "expected"),
    [
        ({}, write(), True),
        ({}, write(operation="UPDATE"), False),
        ({"operations": ["*"]}, write(operation="DELETE"), True),
        ({"operations": ["UPDATE", "CREATE"]}, write(), True),
        ({"apiGroups": ["apps"]}, write(), False),
        ({"apiGroups": ["*"]}, write(), True),
        ({"apiVersions": ["v2"]}, write(), False),
        ({"apiVersions": ["*"]}, write(), True),
        ({"resources": ["configmaps"]}, write(), False),
        ({"resources": ["*"]}, write(), True),
        ({"resources": ["*"]}, write(subresource="status"), False),
        ({"resources": ["*/*"]}, write(subresource="status"), True),
        ({"resources": ["*/*"]}, write(), True),
        ({"resources": ["pods/*"]}, write(subresource="status"), True),
        ({"resources": ["pods/status"]}, write(subresource="status"), True),
        ({"resources": ["pods/status"]}, write(), False),
        ({"resources": ["*/status"]}, write(subresource="status"), True),
        ({"scope": "Namespaced"}, write(), True),
        ({"scope": "Cluster"}, write(), False),
        ({"scope": "*"}, write(), True),
        ({"scope": "Cluster", "resources": ["namespaces"]}, write("Namespace"), True),
        ({"scope": "Namespaced", "resources": ["namespaces"]}, write("Namespace"), False),
        ({"resourceNames": ["x"]}, write(), True),
        ({"resourceNames": ["y"]}, write(), False),
    ],
)
def test_rules(changes: dict[str, Any], attributes: Attributes, expected: bool) -> None:
    assert selects({"resourceRules": [rule(**changes)]}, attributes) == expected
    assert not selects(
        {"resourceRules": [rule(**changes)], "excludeResourceRules": [rule(**changes)]}, attributes
    )


def test_without_rules_everything_is_selected() -> None:
    assert selects({}, write())
    assert selects({"excludeResourceRules": [rule(resources=["configmaps"])]}, write())
    assert selects({"resourceRules": [rule(resources=["x"]), rule()]}, write())


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        (write(), True),
        (write(namespace="other"), False),
        (write(namespace="absent"), False),
        (write("Node"), True),
        (write("Namespace", name="other", labels={"team": "a"}), True),
        (write("Namespace", name="default", labels={"team": "b"}), False),
        (write("Namespace", "DELETE", name="default"), True),
        (write("Namespace", "DELETE", name="other"), False),
    ],
)
def test_namespaces_are_selected_by_their_labels(attributes: Attributes, expected: bool) -> None:
    assert selects({"namespaceSelector": {"matchLabels": {"team": "a"}}}, attributes) == expected
    assert selects({"namespaceSelector": {}}, attributes)


def test_objects_are_selected_by_their_labels_before_or_after() -> None:
    match = {"objectSelector": {"matchLabels": {"a": "b"}}}
    old = {"metadata": {"labels": {"a": "b"}}}
    assert selects(match, write(labels={"a": "b"}))
    assert not selects(match, write(labels={"a": "c"}))
    assert selects(match, write(labels={"a": "c"}, old=old))
    assert selects(match, write(operation="DELETE", old=old))
    assert not selects(match, write(operation="DELETE", old={"metadata": {}}))
    assert selects({"objectSelector": {}}, write())


def test_other_versions_count_unless_the_match_is_exact() -> None:
    rules = [rule(apiGroups=["extensions"], apiVersions=["v1beta1"], resources=["deployments"])]
    attributes = write("Deployment", group="apps")
    found = matched_version({"resourceRules": rules}, attributes, LABELS.__getitem__)
    assert found is not None
    assert (found.group, found.version) == ("extensions", "v1beta1")
    assert not selects({"resourceRules": rules, "matchPolicy": "Exact"}, attributes)
    # The version of the request comes first.
    both = [*rules, rule(apiGroups=["apps"], resources=["deployments"])]
    found = matched_version({"resourceRules": both}, attributes, LABELS.__getitem__)
    assert found is attributes.served


def test_a_namespace_is_in_itself() -> None:
    assert namespace_of(write("Namespace", name="x")) == "x"
    assert namespace_of(write(namespace="y")) == "y"
    assert namespace_of(write("Node")) == ""
