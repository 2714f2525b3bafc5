"""Calls of admission webhooks: which are called, in what order, and what becomes of answers."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from moorage.api.errors import InternalError, ServerTimeoutError, StatusError
from moorage.apiserver.admission.admission_request import Patching
from moorage.apiserver.admission.webhooks import Dispatch, MutatingWebhooks, ValidatingWebhooks
from moorage.apiserver.admission.webhooks.sources import CachedWebhooks, Webhook
from moorage.apiserver.cel.evaluator import Evaluator
from moorage.apiserver.registry.codec import Codec
from moorage.apiserver.registry.kinds.webhookconfigurations import (
    MUTATING_WEBHOOK_CONFIGURATION,
)
from moorage.apiserver.registry.request import Attributes, Reinvocation
from moorage.apiserver.registry.schema import load_schema
from moorage.apiserver.registry.worker import Worker
from moorage.wire.webhooks import WebhookClient
from tests.apiserver.admission.policies.test_audit import deny_all
from tests.apiserver.admission.webhooks.test_audit import RULE, Source
from tests.apiserver.admission.writes import pod, write
from tests.apiserver.webhook_server import WebhookServer, patched
from tests.ports import free_port

Json = dict[str, Any]
_LABELS = {"default": {"tier": "front"}}


@pytest.fixture
def deadline_s() -> float:
    return 60.0


@pytest.fixture
async def dispatch(deadline_s: float) -> AsyncIterator[Dispatch]:
    def no_service(*_: object) -> str:
        raise AssertionError("webhooks are reached by URL here")

    def namespace(name: str) -> Json | None:
        return {"metadata": {"name": name, "labels": _LABELS[name]}} if name in _LABELS else None

    async with Evaluator() as evaluator, WebhookClient(no_service) as client:
        yield Dispatch(client, evaluator, namespace, deny_all, deadline_s)


def source(hooks: WebhookServer, *listed: Json) -> Source:
    filled = [{"rules": [RULE], "failurePolicy": "Fail", **one} for one in listed]
    return Source(hooks.configuration("c", *filled))


def mutating(hooks: WebhookServer, dispatch: Dispatch, *listed: Json) -> MutatingWebhooks:
    return MutatingWebhooks(
        source(hooks, *listed), dispatch, Patching(Codec(load_schema()), Worker())
    )


def validating(hooks: WebhookServer, dispatch: Dispatch, *listed: Json) -> ValidatingWebhooks:
    return ValidatingWebhooks(source(hooks, *listed), dispatch)


async def run(plugin: MutatingWebhooks | ValidatingWebhooks, attributes: Attributes) -> bool:
    """Run the plugin; return whether it called anything."""
    asking = (
        plugin.mutate(attributes)
        if isinstance(plugin, MutatingWebhooks)
        else plugin.validate(attributes)
    )
    if asking is None:
        return False
    await asking
    return True


def label(key: str, value: str = "x") -> Json:
    return patched({"op": "add", "path": f"/metadata/labels/{key}", "value": value})


def labelled() -> Json:
    return pod(labels={"app": "web"})


def paths(hooks: WebhookServer) -> list[str]:
    return [path for path, _ in hooks.asked]


# Which are called.


@pytest.mark.parametrize("kind", [mutating, validating])
@pytest.mark.parametrize(
    ("fields", "is_called"),
    [
        ({}, True),
        ({"rules": [{**RULE, "resources": ["configmaps"]}]}, False),
        ({"rules": [{**RULE, "operations": ["UPDATE"]}]}, False),
        ({"namespaceSelector": {"matchLabels": {"tier": "front"}}}, True),
        ({"namespaceSelector": {"matchLabels": {"tier": "back"}}}, False),
        ({"objectSelector": {"matchLabels": {"app": "web"}}}, True),
        ({"objectSelector": {"matchLabels": {"app": "db"}}}, False),
        ({"matchConditions": [{"name": "a", "expression": "object.metadata.name == 'p'"}]}, True),
        ({"matchConditions": [{"name": "a", "expression": "object.metadata.name == 'q'"}]}, False),
        (
            {
                "matchConditions": [
                    {"name": "a", "expression": "namespaceObject.metadata.name == 'default'"},
                    {"name": "b", "expression": "request.operation == 'CREATE'"},
                ]
            },
            True,
        ),
    ],
)
async def test_rules_selectors_and_conditions_select_a_write(
    hooks: WebhookServer, dispatch: Dispatch, kind: Any, fields: Json, *, is_called: bool
) -> None:
    hooks.answers["a"] = lambda _: {"allowed": True}
    plugin = kind(hooks, dispatch, {"path": "a", **fields})
    await run(plugin, write(obj=labelled()))
    assert paths(hooks) == (["a"] if is_called else [])


@pytest.mark.parametrize("kind", [mutating, validating])
async def test_without_a_webhook_that_selects_it_a_write_waits_for_nothing(
    hooks: WebhookServer, dispatch: Dispatch, kind: Any
) -> None:
    assert not await run(kind(hooks, dispatch), write(obj=pod()))
    other = {"path": "a", "rules": [{**RULE, "resources": ["secrets"]}]}
    assert not await run(kind(hooks, dispatch, other), write(obj=pod()))


@pytest.mark.parametrize("kind", [mutating, validating])
@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
async def test_a_condition_without_a_value_fails_as_the_policy_says(
    hooks: WebhookServer, dispatch: Dispatch, kind: Any, policy: str
) -> None:
    hooks.answers["a"] = lambda _: {"allowed": True}
    condition = {"name": "a", "expression": "object.spec.nodeName == 'n'"}
    plugin = kind(
        hooks, dispatch, {"path": "a", "failurePolicy": policy, "matchConditions": [condition]}
    )
    if policy == "Ignore":
        await run(plugin, write(obj=pod()))
    else:
        with pytest.raises(StatusError) as caught:
            await run(plugin, write(obj=pod()))
        assert caught.value.code == 403
    assert hooks.asked == []


# Answers and failures.


@pytest.mark.parametrize("kind", [mutating, validating])
async def test_a_denial_is_the_answer(hooks: WebhookServer, dispatch: Dispatch, kind: Any) -> None:
    status = {"message": "not today", "code": 418, "reason": "Teapot"}
    hooks.answers["a"] = lambda _: {"allowed": False, "status": status, "warnings": ["w"]}
    attributes = write(obj=pod())
    with pytest.raises(StatusError) as caught:
        await run(kind(hooks, dispatch, {"path": "a"}), attributes)
    assert caught.value.message == (
        'admission webhook "a.hooks.example" denied the request: not today'
    )
    answer = caught.value.to_object()
    assert (answer["code"], answer["reason"]) == (418, "Teapot")
    assert attributes.request.warnings == ["w"]


_FAILURES: dict[str, tuple[Json, Any, str]] = {
    "no review": (
        {},
        lambda _: b"no review",
        'failed calling webhook "a.hooks.example": received invalid webhook response: not an '
        "AdmissionReview: ",
    ),
    "another uid": (
        {},
        lambda _: {"allowed": True, "uid": "other"},
        'failed calling webhook "a.hooks.example": received invalid webhook response: expected ',
    ),
    "no known version": (
        {"admissionReviewVersions": ["v9"]},
        lambda _: {"allowed": True},
        'failed calling webhook "a.hooks.example": failed to call webhook: webhook does not accept '
        "known AdmissionReview versions (v1, v1beta1)",
    ),
}


@pytest.mark.parametrize("kind", [mutating, validating])
@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
@pytest.mark.parametrize("case", _FAILURES)
async def test_a_failure_refuses_or_is_ignored_as_the_policy_says(
    hooks: WebhookServer, dispatch: Dispatch, kind: Any, policy: str, case: str
) -> None:
    fields, hooks.answers["a"], text = _FAILURES[case]
    attributes = write(obj=pod())
    plugin = kind(hooks, dispatch, {"path": "a", "failurePolicy": policy, **fields})
    if policy == "Ignore":
        await run(plugin, attributes)
        (key,) = attributes.request.annotations
        assert key.startswith("failed-open.")
        assert attributes.request.annotations[key] == "a.hooks.example"
        return
    with pytest.raises(InternalError) as caught:
        await run(plugin, attributes)
    assert caught.value.message.startswith(f"Internal error occurred: {text}")


async def test_the_first_known_version_is_asked_for(
    hooks: WebhookServer, dispatch: Dispatch
) -> None:
    hooks.answers["a"] = lambda _: {"allowed": True}
    versions = {"admissionReviewVersions": ["v9", "v1beta1", "v1"]}
    await run(validating(hooks, dispatch, {"path": "a", **versions}), write(obj=pod()))
    assert hooks.asked[0][1]["apiVersion"] == "admission.k8s.io/v1beta1"


@pytest.mark.parametrize("effects", ["None", "NoneOnDryRun", "Some", "Unknown"])
async def test_a_webhook_with_side_effects_is_not_called_for_a_dry_run(
    hooks: WebhookServer, dispatch: Dispatch, effects: str
) -> None:
    hooks.answers["a"] = lambda _: {"allowed": True}
    plugin = validating(
        hooks, dispatch, {"path": "a", "sideEffects": effects, "failurePolicy": "Ignore"}
    )
    if effects.startswith("None"):
        await run(plugin, write(obj=pod(), is_dry_run=True))
        assert len(hooks.asked) == 1
        return
    with pytest.raises(StatusError) as caught:
        await run(plugin, write(obj=pod(), is_dry_run=True))
    assert caught.value.message == 'admission webhook "a.hooks.example" does not support dry run'
    assert caught.value.code == 400
    assert hooks.asked == []
    await run(plugin, write(obj=pod()))
    assert len(hooks.asked) == 1


@pytest.mark.parametrize(("stated", "expected"), [(None, "10s"), (0, "10s"), (3, "3s")])
async def test_a_webhook_is_sent_its_timeout(
    hooks: WebhookServer, dispatch: Dispatch, stated: int | None, expected: str
) -> None:
    fields = {} if stated is None else {"timeoutSeconds": stated}
    config = {**hooks.webhook("a")["clientConfig"], "url": f"https://127.0.0.1:{free_port()}/none"}
    with pytest.raises(InternalError) as caught:
        await run(
            validating(hooks, dispatch, {"path": "a", "clientConfig": config, **fields}),
            write(obj=pod()),
        )
    assert f"/none?timeout={expected}" in caught.value.message


@pytest.mark.parametrize("deadline_s", [0.2])
async def test_all_webhooks_of_a_request_have_one_time_limit(
    hooks: WebhookServer, dispatch: Dispatch
) -> None:

    async def hang(_: Json) -> Json:
        await asyncio.Event().wait()
        raise AssertionError

    hooks.answers["a"] = hang
    attributes = write(obj=pod())
    plugin = validating(hooks, dispatch, {"path": "a", "failurePolicy": "Ignore"})
    for _ in range(2):
        # What starts again after a conflict has what is left: nothing.
        with pytest.raises(ServerTimeoutError, match="request did not complete within"):
            await run(plugin, attributes)
    assert len(hooks.asked) <= 2


async def test_validating_webhooks_are_called_at_once_and_the_first_denial_counts(
    hooks: WebhookServer, dispatch: Dispatch
) -> None:
    both = asyncio.Barrier(2)

    async def deny(request: Json) -> Json:
        del request
        await both.wait()
        return {"allowed": False, "status": {"message": "no"}}

    hooks.answers["a"] = hooks.answers["b"] = deny
    with pytest.raises(StatusError, match=r'admission webhook "a\.hooks\.example" denied'):
        await run(validating(hooks, dispatch, {"path": "a"}, {"path": "b"}), write(obj=pod()))


# Changes.


async def test_mutating_webhooks_see_the_changes_of_those_before(
    hooks: WebhookServer, dispatch: Dispatch
) -> None:
    hooks.answers["a"] = lambda _: label("a")
    hooks.answers["b"] = lambda _: label("b")
    selects = {"objectSelector": {"matchLabels": {"a": "x"}}}
    attributes = write(obj=labelled())
    await run(mutating(hooks, dispatch, {"path": "a"}, {"path": "b", **selects}), attributes)
    assert attributes.obj is not None
    assert attributes.obj["metadata"]["labels"] == {"app": "web", "a": "x", "b": "x"}
    (request,) = hooks.requests("b")
    assert request["object"]["metadata"]["labels"] == {"app": "web", "a": "x"}
    assert attributes.reinvocation is not None
    assert attributes.reinvocation.is_needed


async def test_a_webhook_that_changes_nothing_needs_no_second_turn(
    hooks: WebhookServer, dispatch: Dispatch
) -> None:
    hooks.answers["a"] = lambda _: patched()
    hooks.answers["b"] = lambda _: {"allowed": True}
    attributes = write(obj=labelled())
    await run(mutating(hooks, dispatch, {"path": "a"}, {"path": "b"}), attributes)
    assert attributes.reinvocation is not None
    assert not attributes.reinvocation.is_needed


@pytest.mark.parametrize("policy", ["IfNeeded", "Never"])
async def test_in_a_second_turn_those_are_called_again_that_want_it(
    hooks: WebhookServer, dispatch: Dispatch, policy: str
) -> None:
    hooks.answers["a"] = lambda _: {"allowed": True}
    hooks.answers["b"] = lambda _: label("b")
    attributes = write(obj=labelled())
    plugin = mutating(hooks, dispatch, {"path": "a", "reinvocationPolicy": policy}, {"path": "b"})
    await run(plugin, attributes)
    state = attributes.reinvocation
    assert isinstance(state, Reinvocation)
    state.is_second = True
    await run(plugin, attributes)
    assert paths(hooks) == ["a", "b", *(["a"] if policy == "IfNeeded" else [])]
    assert all("round_1" not in key or "index_0" in key for key in attributes.request.annotations)


async def test_in_a_second_turn_a_change_by_others_has_candidates_called_again(
    hooks: WebhookServer, dispatch: Dispatch
) -> None:
    hooks.answers["a"] = lambda _: {"allowed": True}
    attributes = write(obj=labelled())
    plugin = mutating(hooks, dispatch, {"path": "a", "reinvocationPolicy": "IfNeeded"})
    await run(plugin, attributes)
    assert attributes.reinvocation is not None
    attributes.reinvocation.is_second = True
    await run(plugin, attributes)
    assert paths(hooks) == ["a"]
    assert attributes.obj is not None
    attributes.obj["metadata"]["labels"]["other"] = "y"
    await run(plugin, attributes)
    assert paths(hooks) == ["a", "a"]


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
@pytest.mark.parametrize("text", ["no patch", "{}", '[{"op": 1'])
async def test_a_patch_that_is_none_fails_as_the_policy_says(
    hooks: WebhookServer, dispatch: Dispatch, policy: str, text: str
) -> None:
    encoded = base64.b64encode(text.encode()).decode()
    hooks.answers["a"] = lambda _: {"allowed": True, "patch": encoded, "patchType": "JSONPatch"}
    attributes = write(obj=labelled())
    plugin = mutating(hooks, dispatch, {"path": "a", "failurePolicy": policy})
    if policy == "Ignore":
        await run(plugin, attributes)
        assert attributes.obj == labelled()
        return
    with pytest.raises(InternalError, match="received undecodable patch in webhook response"):
        await run(plugin, attributes)


async def test_a_patch_that_cannot_be_applied_refuses_the_write(
    hooks: WebhookServer, dispatch: Dispatch
) -> None:
    hooks.answers["a"] = lambda _: patched({"op": "remove", "path": "/metadata/none/x"})
    with pytest.raises(
        InternalError, match="Internal error occurred: the server rejected our request due to"
    ):
        await run(
            mutating(hooks, dispatch, {"path": "a", "failurePolicy": "Ignore"}),
            write(obj=labelled()),
        )


async def test_too_many_operations_are_no_patch(hooks: WebhookServer, dispatch: Dispatch) -> None:
    operation = {"op": "test", "path": "/metadata/name", "value": "p"}
    hooks.answers["a"] = lambda _: patched(*[operation] * 10_001)
    with pytest.raises(InternalError, match="more than 10000 operations"):
        await run(mutating(hooks, dispatch, {"path": "a"}), write(obj=labelled()))
    hooks.answers["a"] = lambda _: patched(*[operation] * 10_000)
    await run(mutating(hooks, dispatch, {"path": "a"}), write(obj=labelled()))


async def test_a_deletion_cannot_be_changed(hooks: WebhookServer, dispatch: Dispatch) -> None:
    hooks.answers["a"] = lambda _: label("a")
    attributes = write(operation="DELETE", old=labelled())
    with pytest.raises(InternalError, match="attempted to modify the object, which is not suppor"):
        await run(mutating(hooks, dispatch, {"path": "a"}), attributes)
    hooks.answers["a"] = lambda _: {"allowed": True}
    await run(mutating(hooks, dispatch, {"path": "a"}), attributes)


# Configurations.


def test_a_webhook_is_named_by_its_configuration_generation_and_place() -> None:
    configuration = {
        "metadata": {"name": "c", "uid": "u", "generation": 3},
        "webhooks": [
            {"name": "a", "rules": [RULE], "matchPolicy": "Exact", "failurePolicy": "Ignore"},
            {"name": "b", "objectSelector": {"x": 1}, "namespaceSelector": {"y": 2}},
        ],
    }
    first, second = Webhook.of(configuration)
    assert (first.uid, first.name, first.configuration) == ("u/3/0", "a", "c")
    assert (second.uid, second.name) == ("u/3/1", "b")
    assert (first.ignores_failures, second.ignores_failures) == (True, False)
    assert first.match["resourceRules"] == [RULE]
    assert first.match["matchPolicy"] == "Exact"
    assert (second.match["objectSelector"], second.match["namespaceSelector"]) == (
        {"x": 1},
        {"y": 2},
    )
    assert list(Webhook.of({"metadata": {"name": "c", "uid": "u"}})) == []


class FakeCache:
    """Stored configurations; `scans` counts how often they were read."""

    def __init__(self, *configurations: Json) -> None:
        self.configurations = configurations
        self.scans: list[str] = []

    def scan(self, table: str) -> list[Any]:
        self.scans.append(table)
        return [SimpleNamespace(obj=one) for one in self.configurations]


def test_configurations_are_read_again_only_when_one_has_changed() -> None:
    rules = [{"name": "a", "rules": [RULE]}, {"name": "without"}]
    cache: Any = FakeCache({"metadata": {"name": "c", "uid": "u"}, "webhooks": rules})
    found = CachedWebhooks(cache, MUTATING_WEBHOOK_CONFIGURATION)
    assert [webhook.name for webhook in found.webhooks()] == ["a"]
    found.webhooks()
    assert len(cache.scans) == 1
    (table,) = cache.scans
    others: Any = [SimpleNamespace(key="/pods/default/p")]
    found.changed(others)
    found.webhooks()
    assert len(cache.scans) == 1
    ours: Any = [*others, SimpleNamespace(key=f"{table}c")]
    found.changed(ours)
    cache.configurations = ()
    assert found.webhooks() == ()
    assert len(cache.scans) == 2
