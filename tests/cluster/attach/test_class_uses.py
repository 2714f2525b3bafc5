"""Uses of classes: which templates count, and how they are named."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.cluster.attach.class_uses import ClassUses, class_of_template


def workload(kind: str, **status: Any) -> dict[str, Any]:
    pod = {"spec": {"runtimeClassName": "gvisor", "containers": []}}
    template: dict[str, Any] = {"spec": {"replicas": 0, "template": pod}}
    if kind == "CronJob":
        template = {"spec": {"suspend": True, "jobTemplate": template}}
    if kind == "PodTemplate":
        template = {"template": pod}
    return {"kind": kind, "metadata": {"name": "web", "namespace": "shop"}, **template, **status}


@pytest.mark.parametrize(
    "kind",
    ["CronJob", "DaemonSet", "Deployment", "Job", "PodTemplate", "ReplicaSet",
     "ReplicationController", "StatefulSet"],
)  # fmt: skip
def test_the_template_of_each_kind_counts(kind: str) -> None:
    assert class_of_template(workload(kind)) == "gvisor"


@pytest.mark.parametrize(
    ("condition", "status", "name"),
    [
        ("Complete", "True", ""),
        ("Failed", "True", ""),
        ("Complete", "False", "gvisor"),
        ("Suspended", "True", "gvisor"),
    ],
)
def test_a_finished_job_does_not_count(condition: str, status: str, name: str) -> None:
    conditions = [{"type": condition, "status": status}]
    assert class_of_template(workload("Job", status={"conditions": conditions})) == name


@pytest.mark.parametrize("spec", [{}, {"template": None}, {"template": {"spec": {}}}])
def test_what_names_no_class_does_not_count(spec: dict[str, Any]) -> None:
    assert class_of_template({"kind": "Deployment", "metadata": {}, "spec": spec}) == ""


@pytest.mark.parametrize(
    ("uses", "sentence"),
    [
        (ClassUses(1), "1 pod uses it"),
        (ClassUses(2), "2 pods use it"),
        (ClassUses(0, ("CronJob a/b",)), "the template of CronJob a/b uses it"),
        (
            ClassUses(1, ("Job a/b", "Job a/c")),
            "1 pod and the templates of Job a/b, Job a/c use it",
        ),
        (ClassUses(0, tuple("abcde")), "the templates of a, b, c and 2 more use it"),
    ],
)
def test_who_uses_a_class_is_named(uses: ClassUses, sentence: str) -> None:
    assert uses
    assert uses.sentence == sentence


def test_a_class_without_users_has_no_uses() -> None:
    assert not ClassUses()
