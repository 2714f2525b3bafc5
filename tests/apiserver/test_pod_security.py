"""Pod Security Standards through the API: pods, workloads and namespaces."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from moorage.apiserver.admission.configuration import AdmissionOptions
from moorage.apiserver.admission.pod_security.policy import PodLimits
from tests.apiserver.running_server import Answer, Running, serving

CORE = "/api/v1/namespaces/default"
PODS = f"{CORE}/pods"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
PREFIX = "pod-security.kubernetes.io/"


@pytest.fixture
def limits() -> PodLimits:
    return PodLimits()


@pytest.fixture
async def server(tmp_path: Path, limits: PodLimits) -> AsyncIterator[Running]:
    async with serving(tmp_path, admission=AdmissionOptions(pod_limits=limits)) as running:
        account = {"metadata": {"name": "default"}}
        assert (await running.ask("POST", f"{CORE}/serviceaccounts", account)).status == 201
        yield running


async def label(server: Running, **values: str | None) -> Answer:
    labels = {PREFIX + key.replace("_", "-"): value for key, value in values.items()}
    body = {"metadata": {"labels": labels}}
    return await server.ask("PATCH", "/api/v1/namespaces/default", body, Content_Type=MERGE)


def warnings(answer: Answer) -> list[str]:
    return [text.removeprefix('299 - "')[:-1].replace('\\"', '"')
            for text in answer.headers.getall("Warning", [])]  # fmt: skip


async def add_pod(server: Running, name: str = "p", **spec: Any) -> Answer:
    owners = spec.pop("owners", [])
    spec = {"containers": [{"name": "c", "image": "i"}], **spec}
    body = {"metadata": {"name": name, "ownerReferences": owners}, "spec": spec}
    return await server.ask("POST", PODS, body)


async def test_what_is_enforced(server: Running) -> None:
    assert warnings(await label(server, enforce="baseline")) == []
    refused = await add_pod(server, hostNetwork=True)
    assert (refused.status, refused.json["reason"]) == (403, "Forbidden")
    assert refused.json["message"] == (
        'pods "p" is forbidden: violates PodSecurity "baseline:latest": host namespaces '
        "(hostNetwork=true)"
    )
    assert (await add_pod(server)).status == 201


async def test_what_is_warned_about(server: Running) -> None:
    await label(server, enforce="baseline", warn="restricted", warn_version="v1.7")
    made = await add_pod(server)
    assert made.status == 201
    assert warnings(made) == [
        'would violate PodSecurity "restricted:v1.7": runAsNonRoot != true (pod or container "c" '
        "must set securityContext.runAsNonRoot=true)"
    ]


@pytest.mark.parametrize(
    ("path", "wrap"),
    [
        ("/apis/apps/v1/namespaces/default/deployments", lambda template: {"template": template}),
        ("/apis/batch/v1/namespaces/default/cronjobs",
         lambda template: {"schedule": "@daily", "jobTemplate": {"spec": {"template": template}}}),
    ],
)  # fmt: skip
async def test_templates_are_only_warned_about(server: Running, path: str, wrap: Any) -> None:
    await label(server, enforce="baseline")
    spec = {"containers": [{"name": "c", "image": "i"}], "hostPID": True}
    if "batch" in path:
        spec["restartPolicy"] = "Never"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": spec}
    more = {} if "batch" in path else {"selector": {"matchLabels": {"a": "b"}}}
    body = {"metadata": {"name": "w"}, "spec": {**wrap(template), **more}}
    made = await server.ask("POST", path, body)
    assert made.status == 201, made.text
    assert warnings(made) == [
        'would violate PodSecurity "baseline:latest": host namespaces (hostPID=true)'
    ]


async def test_updates_that_change_what_runs_are_checked(server: Running) -> None:
    assert (await add_pod(server, hostIPC=True)).status == 201
    await label(server, enforce="baseline")
    change = {"metadata": {"labels": {"a": "b"}}}
    assert (await server.ask("PATCH", f"{PODS}/p", change, Content_Type=MERGE)).status == 200
    image = {"spec": {"containers": [{"name": "c", "image": "j"}]}}
    refused = await server.ask("PATCH", f"{PODS}/p", image, Content_Type=STRATEGIC)
    assert refused.status == 403
    debug = {"spec": {"ephemeralContainers": [{"name": "d", "image": "i"}]}}
    path = f"{PODS}/p/ephemeralcontainers"
    refused = await server.ask("PATCH", path, debug, Content_Type=STRATEGIC)
    assert refused.status == 403
    assert "violates PodSecurity" in refused.json["message"]
    # Its status is the node's to write.
    status = {"status": {"phase": "Running"}}
    assert (await server.ask("PATCH", f"{PODS}/p/status", status, Content_Type=MERGE)).status == 200


async def test_wrong_labels_are_refused(server: Running) -> None:
    refused = await label(server, enforce="strict")
    assert (refused.status, refused.json["reason"]) == (422, "Invalid")
    assert refused.json["message"] == (
        f'Namespace "default" is invalid: metadata.labels[{PREFIX}enforce]: Invalid value: '
        '"strict": must be one of privileged, baseline, restricted'
    )
    body = {"metadata": {"name": "n", "labels": {f"{PREFIX}warn-version": "1"}}}
    refused = await server.ask("POST", "/api/v1/namespaces", body)
    assert refused.status == 422
    body = {"metadata": {"name": "n", "labels": {f"{PREFIX}enforce": "restricted"}}}
    assert (await server.ask("POST", "/api/v1/namespaces", body)).status == 201


async def test_a_stricter_namespace_is_warned_about_its_pods(server: Running) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r",
             "controller": True}  # fmt: skip
    for name in ("b", "a", "d"):
        assert (await add_pod(server, name, hostPID=True, owners=[owner])).status == 201
    await add_pod(server, "q", hostIPC=True, hostPID=True, volumes=[
        {"name": "v", "hostPath": {"path": "/"}}
    ])  # fmt: skip
    await add_pod(server, "fine")
    changed = await label(server, enforce="baseline")
    assert warnings(changed) == [
        'existing pods in namespace "default" violate the new PodSecurity enforce level '
        '"baseline:latest"',
        "a (and 2 other pods): host namespaces",
        "q: host namespaces, hostPath volumes",
    ]
    # The same again, a laxer level, and labels of other kinds say nothing.
    assert warnings(await label(server, enforce="baseline")) == []
    assert warnings(await label(server, warn="restricted")) == []
    assert warnings(await label(server, enforce="privileged")) == []
    assert len(warnings(await label(server, enforce="restricted"))) > 2
    assert warnings(await label(server, enforce="baseline")) == []
    # Another version may be stricter.
    assert len(warnings(await label(server, enforce_version="v1.20"))) == 3


@pytest.mark.parametrize("limits", [PodLimits(most_pods=2)])
async def test_a_namespace_of_many_pods_is_checked_in_part(server: Running) -> None:
    for number in range(3):
        assert (await add_pod(server, f"p{number}", hostPID=True)).status == 201
    assert warnings(await label(server, enforce="baseline")) == [
        "new PodSecurity enforce level only checked against the first 2 of 3 existing pods",
        'existing pods in namespace "default" violate the new PodSecurity enforce level '
        '"baseline:latest"',
        "p0 (and 1 other pod): host namespaces",
    ]


@pytest.mark.parametrize("limits", [PodLimits(longest_s=-1.0, pods_a_turn=1)])
async def test_a_check_that_takes_too_long_ends(server: Running) -> None:
    for number in range(3):
        assert (await add_pod(server, f"p{number}", hostPID=True)).status == 201
    assert warnings(await label(server, enforce="baseline"))[0] == (
        "new PodSecurity enforce level only checked against the first 1 of 3 existing pods"
    )
