"""Users of classes: which pods count, and which keep a handler on its nodes."""

from __future__ import annotations

from typing import Any

import msgspec

from moorage.runtimes.classes import ClassUser, pods_under, users_by_class


def _class(name: str, handler: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "handler": handler}


def _user(
    name: str,
    runtime_class: str | None,
    node: str = "n",
    namespace: str = "d",
    phase: str = "Running",
) -> ClassUser:
    pod = {
        "status": {"phase": phase},
        "metadata": {"name": name, "namespace": namespace, "labels": {"a": "b"}},
        "spec": {"runtimeClassName": runtime_class, "nodeName": node, "containers": []},
    }
    return msgspec.convert(pod, ClassUser)


def test_pods_on_nodes_under_any_class_of_the_handler_keep_it() -> None:
    classes = [_class("a", "h"), _class("b", "h"), _class("c", "other")]
    users = [
        _user("2", "b"),
        _user("1", "a"),
        _user("3", "c"),
        _user("waiting", "a", node=""),
        _user("probe", "a", namespace="moorage-probes"),
    ]
    assert pods_under("h", classes, users) == ("d/1", "d/2")
    assert pods_under("absent", classes, users) == ()
    assert users_by_class(users) == {"a": 3, "b": 1, "c": 1}


def test_a_class_is_used_by_pods_that_have_not_ended() -> None:
    phases = ("", "Pending", "Running", "Unknown", "Succeeded", "Failed")
    users = [_user("p", "a", phase=phase) for phase in phases]
    assert [user.is_one for user in users] == [True, True, True, True, False, False]
    assert not _user("p", None).is_one
