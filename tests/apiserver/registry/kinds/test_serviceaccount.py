"""ServiceAccounts."""

from __future__ import annotations

from moorage.apiserver.registry.kinds.core import warn_service_account
from tests.apiserver.registry.kinds.rows import rows
from tests.apiserver.registry.rules import creations

test_creation = creations("ServiceAccount", cases=[
    ({"metadata.name": "A"}, "metadata.name"),
])  # fmt: skip


def test_an_account_that_enforces_its_secrets() -> None:
    key = "kubernetes.io/enforce-mountable-secrets"
    account = {"metadata": {"annotations": {key: "true"}}}
    assert warn_service_account(account, None) == [
        f"metadata.annotations[{key}]: deprecated in v1.32+; prefer separate namespaces to isolate "
        "access to mounted secrets"
    ]
    assert warn_service_account(account, account) == []


test_row = rows("ServiceAccount", cases=[
    ({}, ["x", "90s"]),
])  # fmt: skip
