"""MutatingAdmissionPolicies through the API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from moorage.linux.child import Child
from tests.apiserver.running_server import Answer, Running, serving
from tests.apiserver.server.test_custom_resources import CRDS, is_established, until

GROUP = "/apis/admissionregistration.k8s.io/v1"
POLICIES = f"{GROUP}/mutatingadmissionpolicies"
BINDINGS = f"{GROUP}/mutatingadmissionpolicybindings"
MAPS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
MERGE = "application/merge-patch+json"

CONFIGMAPS = {
    "operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"],
    "resources": ["configmaps"],
}  # fmt: skip
DEPLOYMENT_RULE = {
    "operations": ["CREATE"], "apiGroups": ["apps"], "apiVersions": ["v1"],
    "resources": ["deployments"],
}  # fmt: skip


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with serving(tmp_path, runs=True) as running:
        yield running
    assert not Child.awaited


def configure(expression: str) -> dict[str, Any]:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def patch(expression: str) -> dict[str, Any]:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


def policy(*mutations: dict[str, Any], name: str = "p", **spec: Any) -> dict[str, Any]:
    rule = spec.pop("rule", CONFIGMAPS)
    spec = {
        "matchConstraints": {"resourceRules": [rule]}, "mutations": list(mutations),
        "reinvocationPolicy": "Never", **spec,
    }  # fmt: skip
    return {"metadata": {"name": name}, "spec": spec}


async def enforce(
    server: Running, *mutations: dict[str, Any], name: str = "p", **spec: Any
) -> None:
    """Create a policy and its binding; they are in force with the answer."""
    bound = {"policyName": name, **spec.pop("binding", {})}
    created = await server.ask("POST", POLICIES, policy(*mutations, name=name, **spec))
    assert created.status == 201, created.text
    assert "Warning" not in created.headers
    created = await server.ask("POST", BINDINGS, {"metadata": {"name": f"{name}-b"}, "spec": bound})
    assert created.status == 201, created.text


async def add(server: Running, name: str = "m", **fields: Any) -> Answer:
    return await server.ask("POST", MAPS, {"metadata": {"name": name}, **fields})


async def test_an_apply_configuration_adds_fields_to_the_object(server: Running) -> None:
    await enforce(
        server,
        configure(
            "Object{metadata: Object.metadata{labels: Object.metadata.labels{seen: 'yes'}},"
            " data: {'user': request.userInfo.username}}"
        ),
    )
    created = await add(server, data={"a": "b"})
    assert created.status == 201, created.text
    assert created.json["data"] == {"a": "b", "user": "admin"}
    assert created.json["metadata"]["labels"] == {"seen": "yes"}
    assert (await server.ask("GET", f"{MAPS}/m")).json["data"] == {"a": "b", "user": "admin"}


async def test_a_json_patch_changes_the_object(server: Running) -> None:
    await enforce(
        server,
        patch(
            "[JSONPatch{op: 'test', path: '/data/a', value: 'b'},"
            " JSONPatch{op: 'replace', path: '/data/a', value: 'c'},"
            " JSONPatch{op: 'add', path: '/metadata/labels', value: {}},"
            " JSONPatch{op: 'add', path: '/metadata/labels/' +"
            " jsonpatch.escapeKey('example.com/x'), value: 'y'}]"
        ),
    )
    created = await add(server, data={"a": "b"})
    assert created.json["data"] == {"a": "c"}
    assert created.json["metadata"]["labels"] == {"example.com/x": "y"}
    # The first operation is a test: without it none is applied.
    assert (await add(server, "n", data={"a": "z"})).json["data"] == {"a": "z"}


async def test_keyed_lists_are_merged(server: Running) -> None:
    """As e2e `should mutate a Deployment`."""
    await enforce(
        server,
        configure(
            "Object{spec: Object.spec{template: Object.spec.template{spec: "
            "Object.spec.template.spec{initContainers: [Object.spec.template.spec.initContainers{"
            "name: 'mesh', image: 'mesh:1', restartPolicy: 'Always'}]}}}}"
        ),
        patch("[JSONPatch{op: 'add', path: '/spec/replicas', value: object.spec.replicas + 1}]"),
        rule=DEPLOYMENT_RULE,
        matchConditions=[
            {
                "name": "no-mesh",
                "expression": "!object.spec.template.spec.?initContainers.orValue([])"
                ".exists(c, c.name == 'mesh')",
            }
        ],
    )
    created = await server.ask("POST", DEPLOYMENTS, deployment())
    assert created.status == 201, created.text
    spec = created.json["spec"]
    assert spec["replicas"] == 3
    (container,) = spec["template"]["spec"]["initContainers"]
    assert (container["name"], container["terminationMessagePath"]) == (
        "mesh", "/dev/termination-log",
    )  # fmt: skip
    with_mesh = deployment("e")
    with_mesh["spec"]["template"]["spec"]["initContainers"] = [{"name": "mesh", "image": "x"}]
    created = await server.ask("POST", DEPLOYMENTS, with_mesh)
    assert created.json["spec"]["replicas"] == 2


def deployment(name: str = "d") -> dict[str, Any]:
    labels = {"app": "x"}
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    }


async def test_variables_and_parameters(server: Running) -> None:
    assert (await add(server, "limits", data={"team": "blue"})).status == 201
    await enforce(
        server,
        configure("Object{data: {variables.key: params.data.team}}"),
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        variables=[{"name": "key", "expression": "'te' + 'am'"}],
        binding={"paramRef": {"name": "limits", "parameterNotFoundAction": "Deny"}},
    )
    assert (await add(server)).json["data"] == {"team": "blue"}
    assert (await server.ask("DELETE", f"{MAPS}/limits")).status == 200
    denied = await add(server, "n")
    message = (
        "policy 'p' with binding 'p-b' denied request: failed to configure binding: no params "
        "found for policy binding with `Deny` parameterNotFoundAction"
    )
    assert (denied.status, denied.json["message"]) == (403, message)
    assert denied.json["reason"] == "Forbidden"
    assert denied.json["details"]["causes"] == [{"message": message}]


async def test_absent_parameters_may_be_allowed(server: Running) -> None:
    await enforce(
        server,
        configure("Object{data: {'a': params.data.a}}"),
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        binding={"paramRef": {"name": "absent", "parameterNotFoundAction": "Allow"}},
    )
    created = await add(server)
    assert (created.status, created.json.get("data")) == (201, None)


async def test_each_object_of_parameters_is_an_invocation(server: Running) -> None:
    for name in ("one", "two"):
        body = {"labels": {"set": "x"}, "name": name}
        assert (await server.ask("POST", MAPS, {"metadata": body})).status == 201
    await enforce(
        server,
        configure("Object{data: {params.metadata.name: 'x'}}"),
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        binding={
            "paramRef": {
                "selector": {"matchLabels": {"set": "x"}}, "parameterNotFoundAction": "Deny",
            }
        },
    )  # fmt: skip
    assert (await add(server)).json["data"] == {"one": "x", "two": "x"}


@pytest.mark.parametrize(
    ("mutation", "message"),
    [
        (configure("Object{data: {'a': object.data.absent}}"),
         "expression 'Object{data: {'a': object.data.absent}}' resulted in error: "
         "no such key: data"),
        (configure("Object{metadata: Object.meta{}}"),
         'type mismatch: unexpected type name "Object.meta", expected "Object.metadata", which '
         "matches field name path from root Object type"),
        (configure("Object{dat: {'a': 'b'}}"),
         "error applying patch: failed to convert patch object to typed object: .dat: field not "
         "declared in schema"),
        (patch("[JSONPatch{op: 'remove', path: '/data/a'}]"), "JSON Patch: "),
    ],
)  # fmt: skip
async def test_a_mutation_that_fails_refuses_the_write(
    server: Running, mutation: dict[str, Any], message: str
) -> None:
    await enforce(server, mutation)
    denied = await add(server)
    start = f"policy 'p' with binding 'p-b' denied request: {message}"
    assert denied.status == 403
    assert denied.json["message"].startswith(start), denied.json["message"]
    assert denied.json["reason"] == "Invalid"
    assert (await server.ask("GET", f"{MAPS}/m")).status == 404


async def test_a_failure_may_be_ignored(server: Running) -> None:
    await enforce(
        server,
        configure("Object{data: {'a': object.absent}}"),
        configure("Object{data: {'b': 'c'}}"),
        failurePolicy="Ignore",
    )
    assert (await add(server)).json["data"] == {"b": "c"}


async def test_atomic_parts_may_not_be_configured(server: Running) -> None:
    expression = (
        "Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {'a': 'b'}}}}"
    )
    await enforce(server, configure(expression), rule=DEPLOYMENT_RULE)
    denied = await server.ask("POST", DEPLOYMENTS, deployment())
    assert denied.json["message"].endswith(
        "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or "
        "structs: .spec.selector"
    )


async def test_names_and_uids_stay_as_they_are(server: Running) -> None:
    await enforce(
        server,
        configure("Object{metadata: Object.metadata{name: 'other', uid: 'x', namespace: 'y'}}"),
        patch("[JSONPatch{op: 'replace', path: '/metadata/name', value: 'third'}]"),
    )
    created = await add(server)
    metadata = created.json["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("m", "default")
    assert len(metadata["uid"]) == 36


async def test_a_patch_that_leaves_no_object_of_the_type_is_an_internal_error(
    server: Running,
) -> None:
    await enforce(server, patch("[JSONPatch{op: 'add', path: '/data', value: [1]}]"))
    assert (await add(server)).status == 500
    changed = policy(patch("[JSONPatch{op: 'add', path: '/foo', value: 1}]"))
    merge = {"spec": {"mutations": changed["spec"]["mutations"]}}
    patched = await server.ask("PATCH", f"{POLICIES}/p", merge, Content_Type=MERGE)
    assert patched.status == 200, patched.text
    assert "unknown field" in (await add(server)).json["message"]


async def test_policies_run_in_the_order_of_their_names_and_again_if_needed(
    server: Running,
) -> None:
    count = "[JSONPatch{op: 'add', path: '/data/%s', value: string(size(object.data))}]"
    await enforce(server, patch(count % "a"), name="a", reinvocationPolicy="IfNeeded")
    await enforce(server, patch(count % "b"), name="b")
    created = await add(server, data={"x": "0"})
    # `a` saw one entry, `b` two; then `a` ran again and saw three.
    assert created.json["data"] == {"x": "0", "a": "3", "b": "2"}


async def test_a_policy_that_always_changes_the_object_ends(server: Running) -> None:
    """Each policy runs twice at most, whatever it makes of its own result."""
    grow = "[JSONPatch{op: 'add', path: '/data/x', value: object.data.x + 'x'}]"
    await enforce(server, patch(grow), name="a", reinvocationPolicy="IfNeeded")
    await enforce(server, patch(grow), name="b", reinvocationPolicy="IfNeeded")
    created = await add(server, data={"x": ""})
    assert len(created.json["data"]["x"]) in (3, 4)


async def test_an_expression_that_takes_too_long_refuses_the_write(server: Running) -> None:
    ten = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"
    nested = "x"
    for name in "abcdef":
        nested = f"{ten}.map({name}, {nested})"
    slow = f"Object{{data: {{'a': string({nested.replace('x', '1')}.size())}}}}"
    await enforce(server, configure(slow))
    denied = await add(server)
    assert denied.status == 403
    assert (
        "cost limit exceeded" in denied.json["message"] or "took longer" in denied.json["message"]
    )


async def test_a_value_that_explodes_is_cut_off(server: Running) -> None:
    doubled = "'aaaaaaaaaaaaaaaa'"
    variables = []
    for index in range(30):
        last = f"variables.v{index - 1}" if index else doubled
        variables.append({"name": f"v{index}", "expression": f"{last} + {last}"})
    await enforce(server, configure("Object{data: {'a': variables.v29}}"), variables=variables)
    denied = await add(server)
    assert denied.status in (403, 500), denied.text
    await server.ask("DELETE", f"{POLICIES}/p")
    assert (await add(server)).status == 201


async def test_policies_do_not_see_their_own_kinds(server: Running) -> None:
    everything = {
        "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"],
    }  # fmt: skip
    rules = {**everything, "operations": ["CREATE", "UPDATE"]}
    await enforce(server, configure("Object{absent: 1}"), rule=rules)
    assert (await add(server)).status == 403
    assert (await server.ask("DELETE", f"{BINDINGS}/p-b")).status == 200
    assert (await server.ask("DELETE", f"{POLICIES}/p")).status == 200


async def test_updates_and_dry_runs_are_mutated_deletions_are_not(server: Running) -> None:
    await enforce(server, configure("Object{data: {'op': request.operation}}"))
    dry = await server.ask("POST", f"{MAPS}?dryRun=All", {"metadata": {"name": "m"}})
    assert dry.json["data"] == {"op": "CREATE"}
    assert (await add(server)).json["data"] == {"op": "CREATE"}
    changed = await server.ask("PATCH", f"{MAPS}/m", {"data": {"a": "b"}}, Content_Type=MERGE)
    assert changed.json["data"] == {"op": "UPDATE", "a": "b"}
    assert (await server.ask("DELETE", f"{MAPS}/m")).status == 200


async def test_a_mutated_object_is_validated_and_gets_defaults(server: Running) -> None:
    bad = "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{"
    bad += "containers: [Object.spec.template.spec.containers{name: 'UPPER', image: 'x'}]}}}}"
    await enforce(server, configure(bad), rule=DEPLOYMENT_RULE)
    denied = await server.ask("POST", DEPLOYMENTS, deployment())
    assert denied.status == 422
    assert "spec.template.spec.containers[1].name" in denied.json["message"]


@pytest.mark.parametrize(
    ("mutation", "field", "detail"),
    [
        (configure("Object{"), "applyConfiguration", "compilation failed: ERROR: <input>:1:8"),
        (configure("'x'"), "applyConfiguration", "must evaluate to Object but got string"),
        (patch("JSONPatch{op: 'add'}"), "jsonPatch", "must evaluate to list(JSONPatch) but got"),
        (patch("[JSONPatch{foo: 1}]"), "jsonPatch", "undefined field 'foo'"),
        (configure("Object{data: absent}"), "applyConfiguration",
         "ERROR: <input>:1:14: undeclared reference to 'absent'"),
    ],
)  # fmt: skip
async def test_expressions_are_compiled_when_a_policy_is_written(
    server: Running, mutation: dict[str, Any], field: str, detail: str
) -> None:
    refused = await server.ask("POST", POLICIES, policy(mutation))
    assert refused.status == 422, refused.text
    assert f"spec.mutations[0].{field}.expression" in refused.json["message"]
    assert detail in refused.json["message"]


async def test_custom_resources_are_mutated(server: Running) -> None:
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "items": {
                        "type": "array", "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                        "items": {
                            "type": "object", "required": ["name"],
                            "properties": {"name": {"type": "string"}, "n": {"type": "integer"}},
                        },
                    },
                    "size": {"type": "integer", "default": 7},
                },
            }
        },
    }  # fmt: skip
    definition = {
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing",
                      "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": True, "storage": True,
                          "schema": {"openAPIV3Schema": schema}}],
        },
    }  # fmt: skip
    assert (await server.ask("POST", CRDS, definition)).status == 201
    await until(server, f"{CRDS}/things.example.com", is_established)
    rule = {
        "operations": ["CREATE"], "apiGroups": ["example.com"], "apiVersions": ["*"],
        "resources": ["things"],
    }  # fmt: skip
    await enforce(
        server,
        configure("Object{spec: Object.spec{items: [Object.spec.items{name: 'b', n: 2}]}}"),
        rule=rule,
    )
    body = {
        "apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"},
        "spec": {"items": [{"name": "a"}, {"name": "b"}]},
    }  # fmt: skip
    created = await server.ask("POST", "/apis/example.com/v1/namespaces/default/things", body)
    assert created.status == 201, created.text
    assert created.json["spec"] == {"size": 7, "items": [{"name": "a"}, {"name": "b", "n": 2}]}
