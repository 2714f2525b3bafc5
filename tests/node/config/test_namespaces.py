from __future__ import annotations

from typing import Any

import pytest

from moorage.api.nodes import NodeRuntimeHandler, NodeRuntimeHandlerFeatures
from moorage.node.config.errors import ConfigError
from moorage.node.config.namespaces import (
    check_user_namespaces,
    has_recursive_read_only,
    namespaces,
)
from moorage.wire.cri import pb
from tests.node.objects import a_pod


def handler(name: str, *, users: bool = False, recursive: bool = False) -> NodeRuntimeHandler:
    features = NodeRuntimeHandlerFeatures(
        user_namespaces=users, recursive_read_only_mounts=recursive
    )
    return NodeRuntimeHandler(name=name, features=features)


HANDLERS = (
    handler(""),
    handler("crun", users=True, recursive=True),
    handler("runsc"),
    NodeRuntimeHandler(name="kata"),
)


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({}, (pb.POD, pb.CONTAINER, pb.POD)),
        ({"hostNetwork": True}, (pb.NODE, pb.CONTAINER, pb.POD)),
        ({"hostPID": True}, (pb.POD, pb.NODE, pb.POD)),
        ({"hostIPC": True}, (pb.POD, pb.CONTAINER, pb.NODE)),
        ({"shareProcessNamespace": True}, (pb.POD, pb.POD, pb.POD)),
        ({"hostPID": True, "shareProcessNamespace": True}, (pb.POD, pb.NODE, pb.POD)),
    ],
)
def test_network_pid_and_ipc(spec: dict[str, Any], wanted: tuple[int, int, int]) -> None:
    options = namespaces(a_pod(**spec).spec, None)
    assert (options.network, options.pid, options.ipc) == wanted
    assert not options.HasField("userns_options")


def test_an_ephemeral_container_sees_its_target_unless_all_are_seen_anyway() -> None:
    options = namespaces(a_pod().spec, None, "c1")
    assert (options.pid, options.target_id) == (pb.TARGET, "c1")
    shared = namespaces(a_pod(shareProcessNamespace=True).spec, None, "c1")
    assert (shared.pid, shared.target_id) == (pb.POD, "")


@pytest.mark.parametrize(
    ("name", "handlers", "complaint"),
    [
        ("crun", HANDLERS, None),
        ("", HANDLERS, "runtime does not support user namespaces"),
        ("", (), "runtime does not support user namespaces"),
        ("runsc", HANDLERS, 'RuntimeClass handler "runsc" does not support user namespaces'),
        ("kata", HANDLERS, 'RuntimeClass handler "kata" does not support user namespaces'),
        ("odd", (), 'RuntimeClass handler "odd" does not support user namespaces'),
        (
            "odd",
            HANDLERS,
            'RuntimeClass handler "odd" does not support user namespaces: '
            'the handler "odd" is not known',
        ),
    ],
    ids=[
        "has",
        "default lacks",
        "none reported",
        "lacks",
        "reports nothing",
        "old engine",
        "unknown",
    ],
)
def test_users_of_its_own_need_the_handler(name: str, handlers: Any, complaint: str | None) -> None:
    if complaint is None:
        check_user_namespaces(name, handlers)
        return
    with pytest.raises(ConfigError) as caught:
        check_user_namespaces(name, handlers)
    assert str(caught.value) == f"can't set `spec.hostUsers: false`, {complaint}"


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("crun", True), ("", False), ("runsc", False), ("kata", False), ("odd", False)],
)
def test_recursive_read_only_is_what_the_handler_says(name: str, wanted: bool) -> None:
    assert has_recursive_read_only(name, HANDLERS) is wanted
