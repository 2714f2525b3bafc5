"""ServiceAccounts."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.registry.kinds.core import warn_service_account
from tests.apiserver.registry.kinds.rows import row
from tests.apiserver.registry.rules import changed, complaint


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ({"metadata.name": "A"}, "metadata.name"),
    ],
)  # fmt: skip
def test_creation(sets: dict[str, Any], says: str) -> None:
    error = complaint("ServiceAccount", changed("ServiceAccount", sets))
    assert error is not None
    assert says in error.partition(" is invalid: ")[2]


def test_an_account_that_enforces_its_secrets() -> None:
    key = "kubernetes.io/enforce-mountable-secrets"
    account = {"metadata": {"annotations": {key: "true"}}}
    assert warn_service_account(account, None) == [
        f"metadata.annotations[{key}]: deprecated in v1.32+; prefer separate namespaces to isolate "
        "access to mounted secrets"
    ]
    assert warn_service_account(account, account) == []


@pytest.mark.parametrize(
    ("fields", "cells"),
    [
        ({}, ["x", "90s"]),
    ],
)  # fmt: skip
def test_row(fields: dict[str, Any], cells: list[Any]) -> None:
    assert row("ServiceAccount", fields) == cells
