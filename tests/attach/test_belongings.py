"""What an attachment made, and what others labelled as if it had."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.attach.belongings import belongings
from moorage.attach.manifests import objects
from moorage.attach.manifests.identity import labels
from moorage.attach.served_objects import FIELD_MANAGER
from moorage.attach.survey import is_foreign
from moorage.attach.values import Values


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


def test_a_workload_where_no_part_has_rights_is_of_others() -> None:
    made = objects(Values())
    theirs = [
        labelled("DaemonSet", "moorage-runtime-agent", FIELD_MANAGER, namespace="team"),
        labelled("Namespace", "team"),
    ]
    assert belongings([*made, *theirs]) == (made, theirs)
    # Where the bindings were deleted by hand, labels and names must do.
    workloads = [obj for obj in made if obj["kind"] == "Deployment"]
    assert belongings(workloads) == (workloads, [])


def test_many_labelled_objects_are_separated_in_one_pass() -> None:
    many = range(10_000)
    ours = [labelled("ConfigMap", f"c{number}", FIELD_MANAGER, namespace="a") for number in many]
    assert belongings(ours) == (ours, [])
