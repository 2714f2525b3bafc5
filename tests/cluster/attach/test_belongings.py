"""What an attachment made, and what others labelled as if it had."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.cluster.attach.belongings import belongings
from moorage.cluster.attach.manifests import objects
from moorage.cluster.attach.manifests.identity import labels
from moorage.cluster.attach.served_objects import FIELD_MANAGER
from moorage.cluster.attach.survey import is_foreign
from moorage.cluster.attach.values import Values


def labelled(kind: str, name: str, manager: str = "kubectl", **more: Any) -> dict[str, Any]:
    fields = [{"manager": manager, "operation": "Apply"}]
    metadata = {"name": name, "labels": labels(), "managedFields": fields}
    return {"kind": kind, "metadata": metadata | more}


@pytest.mark.parametrize("namespace", ["moorage-system", "elsewhere"])
def test_all_that_is_installed_by_another_tool_is_ours(namespace: str) -> None:
    made = objects(Values(namespace=namespace))
    assert belongings(made) == (made, [])


@pytest.mark.parametrize("kind", ["Namespace", "Deployment", "ConfigMap", "Secret", "Service"])
def test_objects_that_users_labelled_are_theirs(kind: str) -> None:
    theirs = labelled(kind, "dashboard", namespace="team")
    assert belongings([theirs]) == ([], [theirs])
    applied = labelled(kind, "dashboard", FIELD_MANAGER)
    assert belongings([applied]) == ([applied], [])


def test_the_certificate_that_the_controllers_issued_is_ours() -> None:
    issued = labelled("Secret", "moorage-webhook-tls", "moorage-controllers", namespace="x")
    assert belongings([issued]) == ([issued], [])


def test_a_namespace_of_users_stays_although_it_has_a_workload_of_the_label() -> None:
    theirs = [labelled("Namespace", "team"), labelled("Deployment", "dashboard", namespace="team")]
    assert belongings(theirs) == ([], theirs)


@pytest.mark.parametrize(
    "own", [{}, {"app.kubernetes.io/part-of": "platform"}, {"app.kubernetes.io/part-of": "moorage"}]
)
def test_a_namespace_that_is_part_of_something_else_is_foreign(own: dict[str, str]) -> None:
    assert is_foreign({"metadata": {"name": "moorage-system", "labels": own}})
    assert not is_foreign({"metadata": {"name": "moorage-system", "labels": labels()}})
