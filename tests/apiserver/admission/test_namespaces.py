"""Namespaces come first: they exist, they are not ending, three of them never end."""

from __future__ import annotations

import msgspec
import pytest

from moorage.api.errors import ForbiddenError, NotFoundError
from moorage.api.names import Namespace
from moorage.apiserver.admission.namespaces import NamespaceLifecycle
from moorage.apiserver.registry.kind import Kind
from moorage.apiserver.registry.kinds import STORED_KINDS
from moorage.apiserver.registry.kinds.core import NAMESPACE
from moorage.apiserver.registry.kinds.deployment import DEPLOYMENT
from moorage.apiserver.registry.kinds.node import NODE
from moorage.apiserver.registry.kinds.pod import POD
from moorage.apiserver.registry.kinds.unstored import REVIEWS
from tests.apiserver.admission.writes import admit, pod, write

PHASES = {"default": "Active", "ending": "Terminating"}


def find(name: str) -> Namespace | None:
    if name not in PHASES:
        return None
    return msgspec.convert(
        {"metadata": {"name": name}, "status": {"phase": PHASES[name]}}, Namespace
    )


PLUGIN = NamespaceLifecycle(find)


def test_an_object_in_a_living_namespace_passes() -> None:
    assert admit(PLUGIN, write(POD, pod()))["metadata"]["name"] == "p"


def test_a_missing_namespace_is_a_404_about_the_namespace() -> None:
    with pytest.raises(NotFoundError) as refusal:
        admit(PLUGIN, write(POD, pod(), namespace="zzz"))
    assert refusal.value.message == 'namespaces "zzz" not found'
    assert refusal.value.details == {"name": "zzz", "kind": "namespaces"}


def test_nothing_is_created_in_a_namespace_that_ends() -> None:
    obj = {"metadata": {"name": "d"}, "spec": {}}
    with pytest.raises(ForbiddenError) as refusal:
        admit(PLUGIN, write(DEPLOYMENT, obj, namespace="ending"))
    assert refusal.value.message == (
        'deployments.apps "d" is forbidden: unable to create new content in namespace ending '
        "because it is being terminated"
    )
    assert refusal.value.details == {
        "name": "d",
        "group": "apps",
        "kind": "deployments",
        "causes": [
            {
                "reason": "NamespaceTerminating",
                "message": "namespace ending is being terminated",
                "field": "metadata.namespace",
            }
        ],
    }


@pytest.mark.parametrize("operation", ["UPDATE", "DELETE"])
@pytest.mark.parametrize("namespace", ["ending", "zzz"])
def test_what_exists_may_change_and_go_whatever_becomes_of_its_namespace(
    operation: str, namespace: str
) -> None:
    obj = None if operation == "DELETE" else pod()
    admit(PLUGIN, write(POD, obj, old=pod(), operation=operation, namespace=namespace))


@pytest.mark.parametrize("kind", [kind for kind in REVIEWS if kind.is_namespaced])
def test_questions_are_answered_in_a_namespace_that_ends(kind: Kind) -> None:
    admit(PLUGIN, write(kind, {"metadata": {}}, namespace="ending"))


@pytest.mark.parametrize(
    "kind", [kind for kind in STORED_KINDS if not kind.is_namespaced], ids=lambda kind: kind.plural
)
def test_cluster_wide_objects_need_no_namespace(kind: Kind) -> None:
    admit(PLUGIN, write(kind, {"metadata": {"name": "x"}}))


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
def test_three_namespaces_are_never_deleted(name: str) -> None:
    old = {"metadata": {"name": name}}
    with pytest.raises(ForbiddenError) as refusal:
        admit(PLUGIN, write(NAMESPACE, operation="DELETE", old=old))
    assert refusal.value.message == (
        f'namespaces "{name}" is forbidden: this namespace may not be deleted'
    )


def test_other_namespaces_and_things_of_those_names_are() -> None:
    admit(PLUGIN, write(NAMESPACE, operation="DELETE", old={"metadata": {"name": "mine"}}))
    admit(PLUGIN, write(NODE, operation="DELETE", old={"metadata": {"name": "default"}}))


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
def test_namespaces_that_never_end_may_be_changed(name: str) -> None:
    obj = {"metadata": {"name": name}, "spec": {}}
    plugin = NamespaceLifecycle(find)
    admit(plugin, write(NAMESPACE, obj, operation="UPDATE", old=obj, namespace=""))
    admit(plugin, write(NAMESPACE, obj, namespace=""))
    with pytest.raises(ForbiddenError, match="this namespace may not be deleted"):
        admit(plugin, write(NAMESPACE, None, operation="DELETE", old=obj, namespace=""))
