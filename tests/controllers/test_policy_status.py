"""Status of ValidatingAdmissionPolicies: kinds, schemas, and warnings on a real API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.api.admission_policies import PolicyRule
from moorage.api.errors import NotFoundError
from moorage.api.meta import Object, ObjectMeta, Raw
from moorage.controllers.validatingadmissionpolicies import Schemas, named_resources
from moorage.wire.client.resources import VALIDATING_ADMISSION_POLICIES, Resource
from tests.clocks import FakeClock
from tests.controllers.cluster import running_cluster
from tests.controllers.memory import MemoryClient


class _Definition(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    status: Raw = {}


_DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition",
    _Definition, is_namespaced=False,
)  # fmt: skip


@pytest.mark.parametrize(
    ("groups", "versions", "resources", "named"),
    [
        (("b", "a"), ("v1",), ("y", "x"), ["a/v1/x", "a/v1/y", "b/v1/x", "b/v1/y"]),
        (("*",), ("v1",), ("x",), []),
        (("a",), ("*",), ("x",), []),
        (("a",), ("v1",), ("*", "x/scale", "*/*", "z"), ["a/v1/z"]),
    ],
)
def test_only_names_without_wildcards_are_looked_up(
    groups: tuple[str, ...], versions: tuple[str, ...], resources: tuple[str, ...], named: list[str]
) -> None:
    rule = PolicyRule(groups, versions, resources)
    assert ["/".join(one) for one in named_resources(rule)] == named


async def schema_of(schemas: dict[str, Any], kind: str = "A") -> Any:
    client: Any = MemoryClient(FakeClock())
    document = {"components": {"schemas": schemas}}
    client.answers["GET", "/openapi/v3/apis/g/v1"] = msgspec.json.encode(document)
    return await Schemas(client).find(("g", "v1", kind))


async def test_references_are_replaced_and_circles_are_cut() -> None:
    a = {
        "x-kubernetes-group-version-kind": [{"group": "g", "version": "v1", "kind": "A"}],
        "type": "object",
        "properties": {
            "one": {"allOf": [{"$ref": "#/components/schemas/b"}], "description": "x"},
            "all": {"type": "array", "items": {"$ref": "#/components/schemas/b"}},
            "gone": {"$ref": "#/components/schemas/absent"},
            "port": {"oneOf": [{"type": "integer"}, {"type": "string"}]},
        },
    }
    b = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "again": {"$ref": "#/components/schemas/b"}},
    }
    schema = await schema_of({"a": a, "b": b})
    inner = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "again": {"type": "object"}},
    }
    assert schema["properties"]["one"] == inner
    assert schema["properties"]["all"]["items"] == inner
    assert schema["properties"]["gone"] == {"type": "object"}
    assert schema["properties"]["port"]["x-kubernetes-int-or-string"] is True
    assert await schema_of({"a": a}, "Other") is None


async def test_a_schema_that_doubles_at_each_step_is_cut_off() -> None:
    schemas: dict[str, Any] = {
        f"s{depth}": {
            "type": "object",
            "properties": {
                side: {"$ref": f"#/components/schemas/s{depth + 1}"} for side in ("a", "b")
            },
        }
        for depth in range(40)
    }
    schemas["s0"]["x-kubernetes-group-version-kind"] = [
        {"group": "g", "version": "v1", "kind": "A"}
    ]
    assert await schema_of(schemas) is not None


async def test_the_document_of_a_group_version_is_read_once() -> None:
    client: Any = MemoryClient(FakeClock())
    client.answers["GET", "/openapi/v3/apis/g/v1"] = b"{}"
    client.answers["GET", "/openapi/v3/apis/h/v1"] = NotFoundError("no")
    schemas = Schemas(client)
    for kind in (("g", "v1", "A"), ("g", "v1", "B"), ("h", "v1", "A"), ("h", "v1", "B")):
        assert await schemas.find(kind) is None
    assert len(client.requests) == 2


async def test_a_group_that_is_not_served_has_no_schemas() -> None:
    client: Any = MemoryClient(FakeClock())
    client.answers["GET", "/openapi/v3/api/v1"] = NotFoundError("no")
    assert await Schemas(client).find(("", "v1", "Pod")) is None


def policy(name: str, expression: str, group: str, version: str, plural: str) -> dict[str, Any]:
    rule = {
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": [plural],
        "operations": ["CREATE"],
    }
    return {
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": expression}],
        },
    }


def is_observed(policies: list[Any]) -> bool:
    return len(policies) == 3 and all(
        one.status.observed_generation == one.metadata.generation for one in policies
    )


def is_established(definition: Any) -> bool:
    conditions = definition.status.get("conditions", ())
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


@pytest.mark.slow
async def test_policies_get_warnings_for_what_their_kinds_do_not_have(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        client = cluster.client
        await client.create(_DEFINITIONS, definition())
        await cluster.until(_DEFINITIONS, lambda all_: all(is_established(one) for one in all_))
        for one in (
            policy("right", "object.spec.replicas > 1", "apps", "v1", "deployments"),
            policy("wrong", "object.spec.replicaCount > 1", "apps", "v1", "deployments"),
            policy("custom", "object.spec.coulor == 'x'", "stable.example.com", "v1", "crontabs"),
        ):
            await client.create(VALIDATING_ADMISSION_POLICIES, one)
        await cluster.until(VALIDATING_ADMISSION_POLICIES, is_observed)
        statuses = {}
        for name in ("right", "wrong", "custom"):
            body = await client.request("GET", VALIDATING_ADMISSION_POLICIES.path(name=name))
            statuses[name] = msgspec.json.decode(body)["status"]
        assert statuses["right"] == {"observedGeneration": 1, "typeChecking": {}}
        (warning,) = statuses["wrong"]["typeChecking"]["expressionWarnings"]
        assert warning == {
            "fieldRef": "spec.validations[0].expression",
            "warning": "apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field "
            "'replicaCount'\n | object.spec.replicaCount > 1\n | ...........^\n",
        }
        (warning,) = statuses["custom"]["typeChecking"]["expressionWarnings"]
        assert "stable.example.com/v1, Kind=CronTab" in warning["warning"]
        assert "undefined field 'coulor'" in warning["warning"]


def definition() -> dict[str, Any]:
    spec = {"type": "object", "properties": {"colour": {"type": "string"}}}
    schema = {"type": "object", "properties": {"spec": spec}}
    return {
        "metadata": {"name": "crontabs.stable.example.com"},
        "spec": {
            "group": "stable.example.com",
            "names": {"plural": "crontabs", "kind": "CronTab"},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }
