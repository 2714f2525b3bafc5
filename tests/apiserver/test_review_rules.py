"""What a review must say, and the action it asks about."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.endpoints.reviews import (
    action_of,
    attribute_errors,
    subject_errors,
    subject_of,
)
from moorage.apiserver.registry.rbac import Action
from moorage.apiserver.registry.request import User

_RESOURCE = {"verb": "get", "resource": "pods"}
_PATH = {"verb": "get", "path": "/metrics"}
_ONE_OF = (
    "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or "
    "resourceAttributes must be specified"
)
_NOT_BOTH = (
    'spec.nonResourceAttributes: Invalid value: {"verb":"get","path":"/metrics"}: cannot be '
    "specified in combination with resourceAttributes"
)
_NO_ONE = 'spec.user: Invalid value: "": at least one of user or group must be specified'


@pytest.mark.parametrize(
    ("spec", "errors"),
    [
        ({"resourceAttributes": _RESOURCE}, []),
        ({"nonResourceAttributes": _PATH}, []),
        ({"resourceAttributes": _RESOURCE, "nonResourceAttributes": _PATH}, [_NOT_BOTH]),
        ({}, [_ONE_OF]),
    ],
)
def test_a_question_is_about_a_resource_or_a_path(spec: dict[str, Any], errors: list[str]) -> None:
    assert [str(error) for error in attribute_errors(spec)] == errors
    for subject in ({"user": "a"}, {"groups": ["g"]}):
        assert [str(error) for error in subject_errors({**spec, **subject})] == errors
    assert [str(error) for error in subject_errors(spec)] == [*errors, _NO_ONE]
    assert [str(error) for error in subject_errors({**spec, "groups": []})] == [*errors, _NO_ONE]


@pytest.mark.parametrize(
    ("spec", "action"),
    [
        ({"nonResourceAttributes": _PATH}, Action(verb="get", path="/metrics")),
        ({"nonResourceAttributes": {}}, Action(verb="", path="")),
        ({"resourceAttributes": {}}, Action(verb="", resource="")),
        (
            {"resourceAttributes": {
                "verb": "update", "group": "apps", "resource": "deployments",
                "subresource": "scale", "namespace": "ns", "name": "web", "version": "v1",
            }},
            Action(verb="update", group="apps", resource="deployments", subresource="scale",
                   namespace="ns", name="web"),
        ),
    ],
)  # fmt: skip
def test_the_action_of_a_question(spec: dict[str, Any], action: Action) -> None:
    assert action_of(spec) == action


def test_the_subject_of_a_question() -> None:
    spec = {"user": "a", "uid": "u", "groups": ["g", "h"], "extra": {"k": ["v", "w"]}}
    assert subject_of(spec) == User("a", uid="u", groups=("g", "h"), extra={"k": ("v", "w")})
    assert subject_of({"groups": ["g"]}) == User("", groups=("g",))
