"""Parameters of policies: where they are looked for, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.admission.policies.validating import ParamError, collect_params
from moorage.apiserver.registry.kind import Kind, Obj, Served
from moorage.apiserver.registry.kinds import STORED_KINDS

KINDS = {kind.name: kind for kind in STORED_KINDS}
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap"}
NODE = {"apiVersion": "v1", "kind": "Node"}


class FakeSource:
    """Objects of two namespaces and of the cluster."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Obj] = {}
        for namespace, name, labels in (
            ("a", "one", {"x": "1"}), ("a", "two", {"x": "2"}), ("b", "one", {"x": "1"})
        ):  # fmt: skip
            metadata = {"namespace": namespace, "name": name, "labels": labels}
            self.objects["ConfigMap", namespace, name] = {"metadata": metadata}
        self.objects["Node", "", "n"] = {"metadata": {"name": "n"}}

    def kind_of(self, api_version: str, kind: str) -> tuple[Kind, Served] | None:
        declared = KINDS.get(kind)
        if declared is None or declared.storage.api_version != api_version:
            return None
        return declared, declared.storage

    def find(self, kind: Kind, namespace: str, name: str) -> Obj | None:
        return self.objects.get((kind.name, namespace, name))

    def all(self, kind: Kind, namespace: str) -> list[Obj]:
        return [
            obj for (name, own, _), obj in self.objects.items()
            if name == kind.name and own == namespace
        ]  # fmt: skip


def names(kind: Any, reference: Any, namespace: str = "a") -> list[tuple[str, str]]:
    found = collect_params(kind, reference, namespace, FakeSource())
    return [(one["metadata"].get("namespace", ""), one["metadata"]["name"]) for one in found]


def test_a_policy_without_parameters_is_evaluated_once() -> None:
    assert collect_params(None, {"name": "x"}, "a", FakeSource()) == [None]
    assert collect_params(CONFIG_MAP, None, "a", FakeSource()) == [None]


@pytest.mark.parametrize(
    ("kind", "reference", "found"),
    [
        (CONFIG_MAP, {"name": "one"}, [("a", "one")]),
        (CONFIG_MAP, {"name": "one", "namespace": "b"}, [("b", "one")]),
        (CONFIG_MAP, {"name": "none"}, []),
        (CONFIG_MAP, {"selector": {}}, [("a", "one"), ("a", "two")]),
        (CONFIG_MAP, {"selector": {"matchLabels": {"x": "2"}}}, [("a", "two")]),
        (CONFIG_MAP, {"selector": {"matchLabels": {"x": "1"}}, "namespace": "b"}, [("b", "one")]),
        (NODE, {"name": "n"}, [("", "n")]),
        (NODE, {"selector": {}}, [("", "n")]),
    ],
)
def test_where_parameters_are_found(kind: Any, reference: Any, found: Any) -> None:
    assert names(kind, reference) == found


def test_parameters_have_their_kind_and_version() -> None:
    (only,) = collect_params(NODE, {"name": "n"}, "", FakeSource())
    assert (only["apiVersion"], only["kind"]) == ("v1", "Node")


@pytest.mark.parametrize(
    ("kind", "reference", "namespace", "says"),
    [
        ({"apiVersion": "x/v1", "kind": "X"}, {"name": "a"}, "a",
         "paramKind kind `x/v1, Kind=X` not known"),
        (CONFIG_MAP, {"name": "one"}, "",
         "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"),
        (NODE, {"name": "n", "namespace": "a"}, "a",
         "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"),
        (CONFIG_MAP, {"name": "none", "parameterNotFoundAction": "Deny"}, "a",
         "no params found for policy binding with `Deny` parameterNotFoundAction"),
    ],
)  # fmt: skip
def test_parameters_that_cannot_be_found(
    kind: Any, reference: Any, namespace: str, says: str
) -> None:
    with pytest.raises(ParamError) as failed:
        collect_params(kind, reference, namespace, FakeSource())
    assert str(failed.value) == says
