"""Audit annotations of webhooks: their own, and what became of their calls."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from moorage.apiserver.admission.admission_request import Patching
from moorage.apiserver.admission.webhooks import Dispatch, MutatingWebhooks, ValidatingWebhooks
from moorage.apiserver.admission.webhooks.sources import Webhook
from moorage.apiserver.cel.evaluator import Evaluator
from moorage.apiserver.registry.codec import Codec
from moorage.apiserver.registry.schema import load_schema
from moorage.apiserver.registry.worker import Worker
from moorage.wire.webhooks import WebhookClient
from tests.apiserver.admission.policies.test_audit import deny_all
from tests.apiserver.admission.writes import pod, write
from tests.apiserver.webhook_server import WebhookServer, patched

RULE = {"operations": ["*"], "apiGroups": [""], "apiVersions": ["*"], "resources": ["pods"]}


class Source:
    """The webhooks of one configuration."""

    def __init__(self, configuration: dict[str, Any]) -> None:
        configuration["metadata"]["uid"] = "u"
        self._webhooks = tuple(Webhook.of(configuration))

    def webhooks(self) -> tuple[Webhook, ...]:
        return self._webhooks


@pytest.fixture
async def dispatch() -> AsyncIterator[Dispatch]:
    def no_service(*_: object) -> str:
        raise AssertionError("webhooks are reached by URL here")

    async with Evaluator() as evaluator, WebhookClient(no_service) as client:
        yield Dispatch(client, evaluator, lambda _: None, deny_all)


def source(hooks: WebhookServer, *paths: str) -> Source:
    listed = [{"path": path, "rules": [RULE], "failurePolicy": "Ignore"} for path in paths]
    return Source(hooks.configuration("c", *listed))


async def test_a_webhook_annotates_by_its_name(hooks: WebhookServer, dispatch: Dispatch) -> None:
    hooks.answers["a"] = lambda _: {"allowed": True, "auditAnnotations": {"k": "v"}}
    hooks.answers["b"] = lambda _: b"no review"
    attributes = write(obj=pod())
    asking = ValidatingWebhooks(source(hooks, "a", "b"), dispatch).validate(attributes)
    assert asking is not None
    await asking
    assert attributes.request.annotations == {
        "a.hooks.example/k": "v",
        "failed-open.validating.webhook.admission.k8s.io/round_0_index_1": "b.hooks.example",
    }


async def test_calls_that_may_change_the_object_are_recorded(
    hooks: WebhookServer, dispatch: Dispatch
) -> None:
    add = {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}
    hooks.answers["a"] = lambda _: patched(add)
    hooks.answers["b"] = lambda _: {"allowed": True}
    hooks.answers["c"] = lambda _: b"no review"
    worker = Worker()
    plugin = MutatingWebhooks(
        source(hooks, "a", "b", "c"), dispatch, Patching(Codec(load_schema()), worker)
    )
    attributes = write(obj=pod())
    asking = plugin.mutate(attributes)
    assert asking is not None
    await asking
    prefix = "mutation.webhook.admission.k8s.io/round_0_index_"
    found = attributes.request.annotations
    assert found.pop(f"failed-open.{prefix}2") == "c.hooks.example"
    assert {key: json.loads(value) for key, value in found.items()} == {
        f"{prefix}{index}": {
            "configuration": "c", "webhook": f"{name}.hooks.example", "mutated": name == "a"
        }
        for index, name in enumerate("ab")
    }  # fmt: skip
