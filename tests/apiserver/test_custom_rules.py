"""CEL rules of custom resources through the API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from moorage.linux.child import Child
from tests.apiserver.running_server import Answer, Running, serving
from tests.apiserver.server.test_custom_resources import (
    CRDS,
    definition,
    is_established,
    tab,
    until,
)

TABS = "/apis/stable.example.com/v1/namespaces/default/crontabs"
NAME = CRDS + "/crontabs.stable.example.com"
COUNT = {"type": "integer"}


def ruled(*rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A definition whose specification has these rules."""
    spec = {
        "type": "object",
        "properties": {
            "cronSpec": {"type": "string", "maxLength": 20},
            "replicas": COUNT,
            "least": {"type": "integer", "default": 1},
            "many": {"type": "array", "items": COUNT, "maxItems": 1000},
        },
        "x-kubernetes-validations": list(rules),
    }
    schema = {"type": "object", "properties": {"spec": spec, "status": {
        "type": "object", "properties": {"ready": COUNT},
        "x-kubernetes-validations": [{"rule": "self.ready < 5"}],
    }}, **more}  # fmt: skip
    version = {
        "name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": {
            "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.ready"
        }},
    }  # fmt: skip
    return definition(versions=[version])


RULES = (
    {"rule": "self.least <= self.replicas", "message": "least exceeds replicas",
     "fieldPath": ".least"},
    {"rule": "self.replicas >= oldSelf.replicas",
     "messageExpression": "'shrinks from %d'.format([oldSelf.replicas])"},
)  # fmt: skip


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with serving(tmp_path, runs=True) as server:
        created = await server.ask("POST", CRDS, ruled(*RULES))
        assert created.status == 201, created.text
        await until(server, NAME, is_established)
        yield server
    assert not Child.awaited


def causes(answer: Answer) -> list[tuple[str, str]]:
    assert answer.status == 422, answer.text
    return [(cause["field"], cause["message"]) for cause in answer.json["details"]["causes"]]


async def redefine(server: Running, rule: dict[str, Any]) -> None:
    """Replace the rules of the definition, and wait until the new ones count."""
    mark = {"rule": "self.cronSpec != 'mark'", "message": "redefined"}
    stored = await server.ask("GET", NAME)
    changed = {**stored.json, "spec": ruled(rule, mark)["spec"]}
    assert (await server.ask("PUT", NAME, changed)).status == 200
    async with asyncio.timeout(10):
        for _ in range(1000):
            if "redefined" in (await server.ask("POST", TABS, tab(cronSpec="mark"))).text:
                break
            await asyncio.sleep(0.01)


async def patch(server: Running, path: str, body: dict[str, Any]) -> Answer:
    return await server.ask("PATCH", path, body, Content_Type="application/merge-patch+json")


async def test_a_rule_refuses_a_new_object(server: Running) -> None:
    refused = await server.ask("POST", TABS, tab(replicas=1, least=2))
    assert causes(refused) == [("spec.least", "Invalid value: least exceeds replicas")]
    assert (
        'CronTab.stable.example.com "a" is invalid: spec.least: Invalid value: '
        "least exceeds replicas" in refused.text.replace('\\"', '"')
    )
    # Defaults are set before.
    assert causes(await server.ask("POST", TABS, tab(replicas=0)))
    assert (await server.ask("POST", TABS, tab(replicas=1))).status == 201


async def test_a_rule_refuses_a_change(server: Running) -> None:
    assert (await server.ask("POST", TABS, tab(replicas=3))).status == 201
    shrunk = await patch(server, f"{TABS}/a", {"spec": {"replicas": 2}})
    assert causes(shrunk) == [("spec", "Invalid value: shrinks from 3")]
    scaled = await patch(server, f"{TABS}/a/scale", {"spec": {"replicas": 2}})
    assert causes(scaled) == [("spec", "Invalid value: shrinks from 3")]
    status = await patch(server, f"{TABS}/a/status", {"status": {"ready": 5}})
    assert causes(status) == [("status", "Invalid value: failed rule: self.ready < 5")]
    grown = await patch(server, f"{TABS}/a", {"spec": {"replicas": 4}})
    assert grown.status == 200, grown.text


async def test_rules_do_not_see_what_the_schema_refuses(server: Running) -> None:
    refused = await server.ask("POST", TABS, tab(replicas=1, least=2, cronSpec="x" * 30))
    assert causes(refused) == [
        ("spec.cronSpec", "Too long: may not be more than 20 bytes"),
        ("<nil>", "Invalid value: null: some validation rules were not checked because the object "
         "was invalid; correct the existing errors to complete validation"),
    ]  # fmt: skip


async def test_what_a_new_rule_forbids_may_stay_with_a_warning(server: Running) -> None:
    assert (await server.ask("POST", TABS, tab(replicas=3))).status == 201
    await redefine(server, {"rule": "self.replicas < 3"})
    labelled = await patch(server, f"{TABS}/a", {"metadata": {"labels": {"a": "b"}}})
    assert labelled.status == 200, labelled.text
    assert "failed rule: self.replicas < 3" in labelled.headers["warning"]
    assert causes(await patch(server, f"{TABS}/a", {"spec": {"least": 0}}))


async def test_a_definition_with_a_rule_that_does_not_compile_is_refused(server: Running) -> None:
    stored = await server.ask("GET", NAME)
    changed = {**stored.json, "spec": ruled({"rule": "self.least <"})["spec"]}
    refused = await server.ask("PUT", NAME, changed)
    ((field, message),) = causes(refused)
    assert field == (
        "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule"
    )
    assert message.startswith(
        'Invalid value: {"Rule":"self.least <","Message":"","MessageExpression":"","Reason":null,'
        '"FieldPath":"","OptionalOldSelf":null}: compilation failed: ERROR: <input>:1:13: Syntax'
    )
    # Rules that were accepted are not compiled again when something else changes.
    labelled = {**stored.json, "metadata": {**stored.json["metadata"], "labels": {"a": "b"}}}
    assert (await server.ask("PUT", NAME, labelled)).status == 200


async def test_each_version_with_a_schema_of_its_own_is_compiled(server: Running) -> None:
    one, other = ruled({"rule": "1"})["spec"]["versions"][0], ruled()["spec"]["versions"][0]
    versions = [other, {**one, "name": "v2", "storage": False}]
    refused = await server.ask("POST", CRDS, definition(versions=versions))
    assert [field for field, _ in causes(refused)] == [
        "spec.versions[1].schema.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule"
    ]


async def test_a_rule_that_takes_too_much_is_cut_off(server: Running) -> None:
    await redefine(server, {"rule": "self.many.all(x, self.many.all(y, x == y))"})
    refused = await server.ask("POST", TABS, tab(many=[1] * 300))
    ((field, message),) = causes(refused)
    assert field == "spec"
    assert "call cost exceeds limit" in message
    assert (await server.ask("POST", TABS, tab(many=[1]))).status == 201


INPUTS = Path(__file__).parent / "inputs"


async def test_fields_named_like_reserved_words(server: Running) -> None:
    (definition,) = yaml.safe_load_all((INPUTS / "reserved-words-definition.yaml").read_text())
    path = f"{CRDS}/{definition['metadata']['name']}"
    created = await server.ask("POST", CRDS, definition)
    assert created.status == 201, created.text
    assert "Warning" not in created.headers
    await until(server, path, is_established)
    widgets = "/apis/b22.example.com/v1/namespaces/default/widgets"
    head = {"apiVersion": "b22.example.com/v1", "kind": "Widget"}
    for name, ref, status in (
        ("a", {"type": "secret", "namespace": "n"}, 201), ("b", {"type": "secret"}, 422),
        ("c", {"type": "other"}, 201),
    ):  # fmt: skip
        body = {**head, "metadata": {"name": name}, "spec": {"ref": ref}}
        answer = await server.ask("POST", widgets, body)
        assert answer.status == status, answer.text
