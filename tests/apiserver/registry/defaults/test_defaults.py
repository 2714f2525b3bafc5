"""What the API promises where the user said nothing."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from moorage.apiserver.registry.defaults import default_pull_policy
from moorage.apiserver.registry.kinds import STORED_KINDS
from tests.apiserver.registry.rules import BASES, CODEC, changed, decoded


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.2", "IfNotPresent"),
        ("host:5000/nginx", "Always"),
        ("host:5000/nginx:1", "IfNotPresent"),
        ("nginx@sha256:00", "IfNotPresent"),
        ("nginx:latest@sha256:00", "IfNotPresent"),
        ("", "Always"),
    ],
)
def test_what_may_change_under_its_name_is_always_pulled(image: str, policy: str) -> None:
    assert default_pull_policy(image) == policy


@pytest.mark.parametrize(
    "kind", [kind for kind in STORED_KINDS if kind.name in BASES], ids=lambda kind: kind.name
)
def test_defaults_once_filled_in_stay(kind: Any) -> None:
    once = decoded(kind, changed(kind.name))
    again = copy.deepcopy(once)
    kind.strategy.default(again)
    assert CODEC.normalize(kind.storage.type, again) == once
