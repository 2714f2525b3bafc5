"""ValidatingAdmissionPolicies through the API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from moorage.linux.child import Child
from tests.apiserver.running_server import Answer, Running, serving

GROUP = "/apis/admissionregistration.k8s.io/v1"
POLICIES = f"{GROUP}/validatingadmissionpolicies"
BINDINGS = f"{GROUP}/validatingadmissionpolicybindings"
MAPS = "/api/v1/namespaces/default/configmaps"
MERGE = "application/merge-patch+json"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with serving(tmp_path) as running:
        yield running
    assert not Child.awaited


def policy(*validations: dict[str, Any], **spec: Any) -> dict[str, Any]:
    rule = {
        "operations": ["CREATE", "UPDATE", "DELETE"], "apiGroups": [""], "apiVersions": ["v1"],
        "resources": ["configmaps"],
    }  # fmt: skip
    constraints = {"resourceRules": [rule]}
    spec = {"matchConstraints": constraints, "validations": list(validations), **spec}
    return {"metadata": {"name": "p"}, "spec": spec}


async def enforce(
    server: Running, *validations: dict[str, Any], actions: Any = ("Deny",), **spec: Any
) -> None:
    """Create a policy and its binding; they are in force with the answer."""
    param_ref = spec.pop("paramRef", None)
    created = await server.ask("POST", POLICIES, policy(*validations, **spec))
    assert created.status == 201, created.text
    bound = {"policyName": "p", "validationActions": list(actions)}
    if param_ref:
        bound["paramRef"] = param_ref
    body = {"metadata": {"name": "b"}, "spec": bound}
    created = await server.ask("POST", BINDINGS, body)
    assert created.status == 201, created.text


async def add(server: Running, name: str = "m", **data: str) -> Answer:
    return await server.ask("POST", MAPS, {"metadata": {"name": name}, "data": data})


async def test_a_policy_denies_what_its_expression_does_not_allow(server: Running) -> None:
    await enforce(server, {"expression": "object == null || !has(object.data.secret)"})
    assert (await add(server, a="b")).status == 201
    denied = await add(server, "n", secret="x")
    assert denied.status == 422
    message = (
        "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed expression: "
        "object == null || !has(object.data.secret)"
    )
    assert denied.json["message"] == f'configmaps "n" is forbidden: {message}'
    assert denied.json["reason"] == "Invalid"
    assert denied.json["details"] == {
        "name": "n", "kind": "configmaps", "causes": [{"message": message}]
    }  # fmt: skip
    changed = {"data": {"secret": "x"}}
    assert (await server.ask("PATCH", f"{MAPS}/m", changed, Content_Type=MERGE)).status == 422
    assert (await server.ask("GET", f"{MAPS}/m")).json["data"] == {"a": "b"}


async def test_updates_and_deletions_see_the_old_object(server: Running) -> None:
    assert (await add(server, locked="yes")).status == 201
    assert (await add(server, "other")).status == 201
    await enforce(
        server,
        {"expression": "oldObject == null || oldObject.?data.?locked.orValue('') != 'yes'",
         "message": "locked", "reason": "Forbidden"},
    )  # fmt: skip
    denied = await server.ask("DELETE", f"{MAPS}/m")
    assert (denied.status, denied.json["reason"]) == (403, "Forbidden")
    assert denied.json["message"].endswith("denied request: locked")
    assert (await server.ask("DELETE", f"{MAPS}/other")).status == 200
    patched = await server.ask("PATCH", f"{MAPS}/m", {"data": {"a": "b"}}, Content_Type=MERGE)
    assert patched.status == 403
    collected = await server.ask("DELETE", MAPS)
    assert collected.status == 403, collected.text
    assert (await server.ask("GET", f"{MAPS}/m")).status == 200


async def test_a_binding_may_only_warn(server: Running) -> None:
    await enforce(server, {"expression": "false", "message": "mind"}, actions=["Warn", "Audit"])
    warned = await add(server)
    assert warned.status == 201
    assert (
        "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': mind"
        in warned.headers["Warning"]
    )


async def test_a_policy_without_a_binding_is_not_in_force(server: Running) -> None:
    assert (await server.ask("POST", POLICIES, policy({"expression": "false"}))).status == 201
    assert (await add(server)).status == 201


async def test_a_policy_ends_with_itself_or_its_binding(server: Running) -> None:
    await enforce(server, {"expression": "false"})
    assert (await add(server)).status == 422
    assert (await server.ask("DELETE", f"{BINDINGS}/b")).status == 200
    assert (await add(server)).status == 201


async def test_a_changed_policy_is_in_force_at_once(server: Running) -> None:
    await enforce(server, {"expression": "false"})
    assert (await add(server)).status == 422
    spec = {"spec": {"validations": [{"expression": "true"}]}}
    changed = await server.ask("PATCH", f"{POLICIES}/p", spec, Content_Type=MERGE)
    assert changed.status == 200, changed.text
    assert (await add(server)).status == 201


@pytest.mark.parametrize(("policy_", "status"), [("Fail", 422), ("Ignore", 201)])
async def test_errors_deny_unless_they_are_ignored(
    server: Running, policy_: str, status: int
) -> None:
    await enforce(server, {"expression": "object.zz == 1"}, failurePolicy=policy_)
    answer = await add(server)
    assert answer.status == status
    if status == 422:
        assert answer.json["message"].endswith(
            "denied request: expression 'object.zz == 1' resulted in error: no such key: zz"
        )


async def test_parameters_of_a_binding(server: Running) -> None:
    assert (await add(server, "params", most="2")).status == 201
    await enforce(
        server,
        {"expression": "object == null || object.data.size() <= int(params.data.most)",
         "messageExpression": "'at most ' + params.data.most"},
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        paramRef={"name": "params", "parameterNotFoundAction": "Deny"},
    )  # fmt: skip
    assert (await add(server, "few", a="1", b="2")).status == 201
    denied = await add(server, "many", a="1", b="2", c="3")
    assert denied.json["message"].endswith("denied request: at most 2"), denied.text
    elsewhere = await server.ask(
        "POST", "/api/v1/namespaces/kube-system/configmaps", {"metadata": {"name": "m"}}
    )
    assert elsewhere.json["message"].endswith(
        "failed to configure binding: no params found for policy binding with `Deny` "
        "parameterNotFoundAction"
    )


async def test_who_asks_and_where(server: Running) -> None:
    await enforce(
        server,
        {"expression": "request.userInfo.username == 'admin'", "message": "not you"},
        {"expression": "namespaceObject.metadata.name == 'default'", "message": "not there"},
        {"expression": "request.resource.resource == 'configmaps' && request.dryRun == false"},
    )
    assert (await add(server)).status == 201
    elsewhere = await server.ask(
        "POST", "/api/v1/namespaces/kube-system/configmaps", {"metadata": {"name": "m"}}
    )
    assert elsewhere.json["message"].endswith("denied request: not there")


async def test_policies_do_not_apply_to_policies(server: Running) -> None:
    rule = {
        "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]
    }  # fmt: skip
    await enforce(server, {"expression": "false"}, matchConstraints={"resourceRules": [rule]})
    assert (await add(server)).status == 422
    assert (await server.ask("DELETE", f"{POLICIES}/p")).status == 200
    assert (await add(server)).status == 201


async def test_expressions_that_do_not_compile_are_refused(server: Running) -> None:
    refused = await server.ask("POST", POLICIES, policy({"expression": "object.x ="}))
    assert refused.status == 422
    (cause,) = refused.json["details"]["causes"]
    assert cause["field"] == "spec.validations[0].expression"
    assert cause["message"].startswith(
        'Invalid value: "object.x =": compilation failed: ERROR: <input>:1:'
    )


async def test_a_policy_that_never_ends_denies_and_holds_no_other_up(server: Running) -> None:
    ten = "[0,1,2,3,4,5,6,7,8,9].all"
    slow = (
        f"object == null || {ten}(a, {ten}(b, {ten}(c, !object.data.t.matches('(a|b|ab)*(x+)+z'))))"
    )
    await enforce(server, {"expression": slow})
    attacking = asyncio.create_task(add(server, "slow", t="ab" * 450_000))
    other = await server.ask("GET", "/api/v1/namespaces/default")
    assert other.status == 200
    denied = await attacking
    assert denied.status in (201, 422)
    if denied.status == 422:
        # Its costs end it, or on a slow machine the time.
        ends = ("actual cost limit exceeded", "the rules took longer than")
        assert any(end in denied.text for end in ends)
    assert (await add(server, "quick", t="a")).status == 201


async def test_ten_policies_decide_in_the_order_of_their_names(server: Running) -> None:
    for number in reversed(range(10)):
        one = policy({"expression": "false", "message": str(number)})
        one["metadata"]["name"] = f"p{number}"
        assert (await server.ask("POST", POLICIES, one)).status == 201
        bound = {"policyName": f"p{number}", "validationActions": ["Deny"]}
        body = {"metadata": {"name": f"b{number}"}, "spec": bound}
        assert (await server.ask("POST", BINDINGS, body)).status == 201
    denied = await add(server)
    assert denied.json["message"].endswith("denied request: 0")


async def test_expressions_ask_the_authorizer_of_the_server(server: Running) -> None:
    await enforce(
        server,
        {
            "expression": "authorizer.group('apps').resource('deployments').namespace('default')"
            ".check('create').allowed() && authorizer.path('/healthz').check('get').allowed()"
        },
        {"expression": "authorizer.requestResource.check('delete').allowed()"},
        {
            "expression": "!authorizer.serviceAccount('default', 'default').group('')"
            ".resource('secrets').namespace('default').check('get').allowed()",
            "message": "may not",
        },
    )
    assert (await add(server)).status == 201


async def test_a_policy_denies_by_what_the_user_may_do(server: Running) -> None:
    await enforce(
        server,
        {
            "expression": "authorizer.serviceAccount('default', 'sa').group('').resource("
            "request.resource.resource).namespace(request.namespace).check('create').allowed()",
            "messageExpression": "'sa: ' + authorizer.serviceAccount('default', 'sa').group('')"
            ".resource('configmaps').check('create').reason()",
        },
    )
    denied = await add(server)
    assert denied.status == 422
    assert denied.json["message"].split("denied request: ")[1].startswith(("sa:", "failed"))
    role = {
        "metadata": {"name": "r"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}],
    }
    binding = {
        "metadata": {"name": "r"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "ServiceAccount", "name": "sa", "namespace": "default"}],
    }
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    assert (await server.ask("POST", f"{rbac}/roles", role)).status == 201
    assert (await server.ask("POST", f"{rbac}/rolebindings", binding)).status == 201
    assert (await add(server)).status == 201


async def test_a_policy_on_fields_named_like_reserved_words(server: Running) -> None:
    path = Path(__file__).parent / "inputs" / "reserved-words-policy.yaml"
    policy, binding = yaml.safe_load_all(path.read_text())
    for place, one in ((POLICIES, policy), (BINDINGS, binding)):
        created = await server.ask("POST", place, one)
        assert created.status == 201, created.text
        assert "Warning" not in created.headers
    bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"

    def subject_of(namespace: str) -> dict[str, Any]:
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
        subject = {"kind": "ServiceAccount", "name": "a", "namespace": namespace}
        return {"metadata": {"name": namespace}, "subjects": [subject], "roleRef": role}

    refused = await server.ask("POST", bindings, subject_of("evil"))
    assert (refused.status, "no subjects of evil" in refused.text) == (422, True), refused.text
    assert (await server.ask("POST", bindings, subject_of("good"))).status == 201
