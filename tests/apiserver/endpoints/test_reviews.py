"""Questions about identities and permissions, as clients ask them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.access import RBAC, ROOT, grant
from tests.apiserver.running_server import Answer, Running, serving

ISSUER = "https://kubernetes.default.svc"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with serving(tmp_path) as running:
        yield running


async def review(
    server: Running, kind: str, spec: dict[str, Any], *, token: str = "admin-token",
    namespace: str = "",
) -> Answer:  # fmt: skip
    is_access = "Access" in kind or "Rules" in kind
    group = "authorization.k8s.io" if is_access else "authentication.k8s.io"
    where = f"/namespaces/{namespace}" if namespace else ""
    body = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
    if namespace:
        body["metadata"] = {"namespace": namespace}
    path = f"/apis/{group}/v1{where}/{kind.lower()}s"
    return await server.ask("POST", path, body, token=token)


async def status(server: Running, kind: str, spec: dict[str, Any], **how: str) -> Any:
    answer = await review(server, kind, spec, **how)
    assert answer.status == 201, answer.text
    assert answer.json["kind"] == kind
    assert answer.json["spec"] == spec
    return answer.json["status"]


ALICE = {"username": "alice", "groups": ["dev", "system:authenticated"]}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"token": "alice-token"},
         {"authenticated": True, "user": ALICE, "audiences": [ISSUER]}),
        ({"token": "alice-token", "audiences": ["a", "b"]},
         {"authenticated": True, "user": ALICE, "audiences": ["a", "b"]}),
        ({"token": "wrong"}, {"user": {}, "error": "invalid bearer token"}),
    ],
)  # fmt: skip
async def test_whose_a_token_is(server: Running, spec: Any, expected: Any) -> None:
    assert await status(server, "TokenReview", spec) == expected


async def test_a_review_of_no_token_is_a_bad_request(server: Running) -> None:
    answer = await review(server, "TokenReview", {"token": ""})
    assert answer.status == 400
    assert answer.json["message"] == "token is required for TokenReview in authentication"


async def test_who_am_i(server: Running) -> None:
    answer = await review(server, "SelfSubjectReview", {}, token="alice-token")
    assert answer.json["status"] == {"userInfo": ALICE}
    assert answer.json["metadata"]["creationTimestamp"].endswith("Z")


def on(verb: str = "get", resource: str = "pods", namespace: str = "default", **more: Any) -> Any:
    return {"resourceAttributes": {"verb": verb, "resource": resource, "namespace": namespace,
                                   **more}}  # fmt: skip


def at(path: str, verb: str = "get") -> Any:
    return {"nonResourceAttributes": {"path": path, "verb": verb}}


ALLOWED = [
    on(), on(name="p"), on("list", "deployments", group="apps"), on(subresource="log"),
    at("/healthz"),
]  # fmt: skip
DENIED = [
    on("delete"), on(resource="secrets"), on(group="apps"), on(subresource="exec"),
    on("list", "deployments"), at("/metrics"), at("/healthz", "post"),
]  # fmt: skip


@pytest.mark.parametrize("spec", [*ALLOWED, *DENIED], ids=repr)
async def test_what_i_and_others_may(server: Running, spec: Any) -> None:
    await grant(server, "alice", ["get"], "pods", "pods/log")
    await grant(server, "alice", ["list"], "deployments", group="apps")
    is_allowed = spec in ALLOWED
    review_status = await status(server, "SelfSubjectAccessReview", spec, token="alice-token")
    assert review_status["allowed"] is is_allowed
    assert ("reason" in review_status) is is_allowed
    of_other = {"user": "alice", "groups": ["system:authenticated"], **spec}
    assert (await status(server, "SubjectAccessReview", of_other))["allowed"] is is_allowed
    assert not (await status(server, "SubjectAccessReview", {"user": "bob", **spec}))["allowed"]
    if "resourceAttributes" in spec:
        local = await status(server, "LocalSubjectAccessReview", of_other, namespace="default")
        assert local["allowed"] is is_allowed


async def test_a_group_alone_may_be_asked_about(server: Running) -> None:
    spec = {"groups": ["other", "system:masters"], **on("delete")}
    assert (await status(server, "SubjectAccessReview", spec))["allowed"]


@pytest.mark.parametrize(
    ("kind", "spec", "code", "message"),
    [
        ("SelfSubjectAccessReview", {}, 422,
         "exactly one of nonResourceAttributes or resourceAttributes must be specified"),
        ("SelfSubjectAccessReview", {**on(), **at("/")}, 422,
         "cannot be specified in combination with resourceAttributes"),
        ("SubjectAccessReview", on(), 422, "at least one of user or group must be specified"),
        ("SubjectAccessReview", {"user": "alice"}, 422, "exactly one of"),
        ("LocalSubjectAccessReview", {"user": "alice", **on(namespace="other")}, 422,
         'spec.resourceAttributes.namespace: Invalid value: "other": must match '
         "metadata.namespace"),
        ("LocalSubjectAccessReview", {"user": "alice"}, 422, "exactly one of"),
        ("LocalSubjectAccessReview", {"user": "alice", **on(), **at("/")}, 422,
         "disallowed on this kind of request"),
        ("SelfSubjectRulesReview", {}, 400, "no namespace on request"),
    ],
)  # fmt: skip
async def test_questions_that_make_no_sense(
    server: Running, kind: str, spec: Any, code: int, message: str
) -> None:
    namespace = "default" if kind.startswith("Local") else ""
    answer = await review(server, kind, spec, namespace=namespace)
    assert (answer.status, message in answer.json["message"]) == (code, True), answer.text


FIELDS = "spec.resourceAttributes.fieldSelector"
LABELS = "spec.resourceAttributes.labelSelector"
WITH_VALUES = "Required value: must be specified when `operator` is 'In' or 'NotIn'"
WITHOUT_VALUES = "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"


def where(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


@pytest.mark.parametrize("kind", [
    "SelfSubjectAccessReview", "SubjectAccessReview", "LocalSubjectAccessReview",
])  # fmt: skip
@pytest.mark.parametrize(
    ("field", "selector", "message"),
    [
        (field, selector, f"{path}.{words}")
        for field, path in (("fieldSelector", FIELDS), ("labelSelector", LABELS))
        for selector, words in (
            ({}, f"requirements: Required value: when {path} is specified, requirements or "
                 "rawSelector is required"),
            ({"rawSelector": "a=b", "requirements": [where("a", "In", "b")]},
             'rawSelector: Invalid value: "a=b": may not specified at the same time as '
             "requirements"),
            ({"requirements": [where("a", "In", "b"), where("a", "NotIn")]},
             f"requirements[1].values: {WITH_VALUES}"),
            ({"requirements": [where("a", "Exists", "b")]},
             f"requirements[0].values: {WITHOUT_VALUES}"),
        )
    ] + [
        ("fieldSelector", {"requirements": [where("", "Exists")]},
         f"{FIELDS}.requirements[0].key: Required value: must be specified"),
        ("labelSelector", {"requirements": [where("a/b/c", "Exists")]},
         f'{LABELS}.requirements[0].key: Invalid value: "a/b/c": '),
        ("labelSelector", {"requirements": [where("a", "In", "b", "-")]},
         f'{LABELS}.requirements[0].values[1]: Invalid value: "-": '),
    ],
)  # fmt: skip
async def test_selectors_of_a_question_are_validated(
    server: Running, kind: str, field: str, selector: Any, message: str
) -> None:
    spec = on("list", **{field: selector})
    namespace = "default" if kind.startswith("Local") else ""
    if not kind.startswith("Self"):
        spec["user"] = "alice"
    answer = await review(server, kind, spec, namespace=namespace)
    assert (answer.status, message in answer.json["message"]) == (422, True), answer.text


def unread(field: str, how: str = "ignored") -> str:
    return f"spec.resourceAttributes.{field} {how} due to parse error"


NODE_FIELD = "spec.nodeName"


@pytest.mark.parametrize(
    ("selectors", "is_allowed", "error"),
    [
        ({}, False, ""),
        ({"fieldSelector": {"rawSelector": f"{NODE_FIELD}=n1"}}, True, ""),
        ({"fieldSelector": {"rawSelector": f"{NODE_FIELD}=n2"}}, False, ""),
        ({"fieldSelector": {"rawSelector": "broken"}}, False, unread("fieldSelector")),
        ({"fieldSelector": {"requirements": [where(NODE_FIELD, "In", "n1")]}}, True, ""),
        ({"fieldSelector": {"requirements": [where(NODE_FIELD, "NotIn", "n1")]}}, False, ""),
        ({"fieldSelector": {"requirements": [where(NODE_FIELD, "In", "n1", "n2")]}}, False,
         unread("fieldSelector")),
        ({"fieldSelector": {"requirements": [where("a", "Near", "b"),
                                             where(NODE_FIELD, "In", "n1")]}}, True,
         unread("fieldSelector", "partially ignored")),
        ({"fieldSelector": {"requirements": [where("a", "Exists")]},
          "labelSelector": {"rawSelector": "a in"}}, False,
         f"{unread('fieldSelector')}; {unread('labelSelector')}"),
        ({"labelSelector": {"requirements": [where("a", "Near"), where("b", "Exists")]}}, False,
         unread("labelSelector", "partially ignored")),
        ({"labelSelector": {"requirements": [where("a", "Near")]}}, False,
         unread("labelSelector")),
        ({"labelSelector": {"requirements": [where("a", "In", "b"), where("b", "Exists")]}}, False,
         ""),
        ({"labelSelector": {"rawSelector": f"{NODE_FIELD}=n1"}}, False, ""),
    ],
)  # fmt: skip
async def test_a_node_agent_may_list_the_pods_of_its_node(
    server: Running, selectors: Any, is_allowed: bool, error: str
) -> None:
    attributes = {"verb": "list", "resource": "pods", **selectors}
    agent = {"user": "system:node:n1", "groups": ["system:nodes"]}
    review_status = await status(
        server, "SubjectAccessReview", {**agent, "resourceAttributes": attributes}
    )
    assert review_status["allowed"] is is_allowed
    assert review_status.get("evaluationError", "") == error
    # Rules do not look at selectors.
    await grant(server, "alice", ["list"], "pods")
    review_status = await status(
        server, "SelfSubjectAccessReview", {"resourceAttributes": attributes}, token="alice-token"
    )
    assert (review_status["allowed"], review_status.get("evaluationError", "")) == (True, error)


async def test_the_rules_that_hold_for_me(server: Running) -> None:
    await grant(server, "alice", ["get"], "pods", "pods/log")
    role = {
        "apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": {"name": "local"},
        "rules": [{"verbs": ["list"], "apiGroups": ["apps"], "resources": ["deployments"]}],
    }  # fmt: skip
    binding = {
        "apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "metadata": {"name": "local"},
        "roleRef": {"kind": "Role", "name": "local"},
        "subjects": [{"kind": "Group", "name": "dev"}],
    }  # fmt: skip
    for path, obj in (("roles", role), ("rolebindings", binding)):
        answer = await server.ask("POST", f"{ROOT}/namespaces/default/{path}", obj)
        assert answer.status == 201, answer.text

    async def rules(namespace: str, token: str = "alice-token") -> Any:
        spec = {"namespace": namespace}
        return await status(server, "SelfSubjectRulesReview", spec, token=token)

    here, there = await rules("default"), await rules("kube-system")
    assert here["incomplete"] is False
    resources = [rule["resources"] for rule in here["resourceRules"]]
    assert ["pods", "pods/log"] in resources
    assert ["deployments"] in resources
    assert ["deployments"] not in [rule["resources"] for rule in there["resourceRules"]]
    assert any("/healthz" in rule["nonResourceURLs"] for rule in here["nonResourceRules"])
    everything = await rules("default", "admin-token")
    assert {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]} in everything["resourceRules"]
    assert {"verbs": ["*"], "nonResourceURLs": ["*"]} in everything["nonResourceRules"]
