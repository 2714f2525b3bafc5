"""Uses of classes: which templates count, and how they are named."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.attach.class_uses import ClassUses, class_of_template, class_uses
from moorage.attach.served_objects import ServedObjects
from moorage.runtimes.classes import class_users
from tests.attach.object_server import running


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


async def test_pods_and_templates_are_counted_by_class() -> None:
    gvisor = {"runtimeClassName": "gvisor", "containers": []}
    async with running() as (server, client):
        versions = {"CronJob": "batch/v1", "Job": "batch/v1", "PodTemplate": "v1"}
        for kind in ("CronJob", "DaemonSet", "Deployment", "Job", "PodTemplate"):
            server.put(workload(kind) | {"apiVersion": versions.get(kind, "apps/v1")})
        plain = workload("Deployment") | {"apiVersion": "apps/v1", "spec": {"template": {}}}
        server.put(plain | {"metadata": {"name": "plain", "namespace": "shop"}})
        for name, spec in (
            ("a", gvisor), ("b", gvisor), ("c", gvisor | {"runtimeClassName": "kata"}),
            ("d", {"containers": []}),
        ):  # fmt: skip
            metadata = {"name": name, "namespace": "shop"}
            server.put({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        uses = await class_uses(ServedObjects(client), await class_users(client))
    kinds = ("PodTemplate", "Deployment", "DaemonSet", "Job", "CronJob")
    assert uses == {
        "gvisor": ClassUses(2, tuple(f"{kind} shop/web" for kind in kinds)),
        "kata": ClassUses(1),
    }
