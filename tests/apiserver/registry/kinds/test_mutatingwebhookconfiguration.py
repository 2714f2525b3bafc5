"""MutatingWebhookConfigurations: what only they have."""

from __future__ import annotations

from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import KINDS, changed, complaint, decoded

KIND = "MutatingWebhookConfiguration"


def test_a_webhook_is_not_called_again_by_default() -> None:
    assert decoded(KINDS[KIND], changed(KIND))["webhooks"][0]["reinvocationPolicy"] == "Never"


def test_reinvocation_policy() -> None:
    error = complaint(KIND, changed(KIND, {"webhooks[0].reinvocationPolicy": "X"}))
    assert error is not None
    assert error.endswith(
        'webhooks[0].reinvocationPolicy: Unsupported value: "X": supported values: "IfNeeded", '
        '"Never"'
    )


def test_row() -> None:
    assert row(KIND, {"webhooks": [{}]}) == ["x", 1, "90s"]


def test_columns() -> None:
    assert columns(KIND) == "Name Webhooks Age |"
