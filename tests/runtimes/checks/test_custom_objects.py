"""Objects of our own group: what their definitions allow, without an API server."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.api.runtime_group import API_VERSION
from moorage.runtimes.checks.facts import own_object_errors


def an_object(kind: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": "a"}, "spec": spec}


QUOTA = {"className": "crun", "hard": {"pods": 3}}


@pytest.mark.parametrize(
    ("value", "fields"),
    [
        (an_object("RuntimeClassQuota", **QUOTA), []),
        (an_object("RuntimeClassQuota", className="*", hard={"pods": "1k"}), []),
        (an_object("RuntimeClassQuota", className="legacy", hard={"requests.cpu": "1.5"}), []),
        (an_object("RuntimeClassQuota", className="A B", hard={"pods": 3}), ["spec.className"]),
        (an_object("RuntimeClassQuota", className="a", hard={"pods": "1.5"}), ["spec.hard.pods"]),
        (an_object("RuntimeClassQuota", className="a", hard={"pods": -1}), ["spec.hard.pods"]),
        (
            an_object("RuntimeClassQuota", className="a", hard={"pods": 1, "gpus": 1}),
            ["spec.hard.gpus"],
        ),
        (an_object("RuntimeRollout", **{"from": "a", "to": "b"}), []),
        (an_object("RuntimeRollout", **{"from": "a", "to": "B_"}), ["spec.to"]),
        (an_object("RuntimeRollout", **{"from": "a", "to": "a"}), ["spec"]),
    ],
)
async def test_what_a_definition_does_not_allow(value: dict[str, Any], fields: list[str]) -> None:
    (errors,) = await own_object_errors([value])
    assert [error.field for error in errors] == fields
