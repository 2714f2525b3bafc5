"""Reads of tests without kubectl: they are what kubectl prints."""

from __future__ import annotations

import json

import pytest

from tests.running import RunningCluster, pod, until


@pytest.mark.parametrize(
    "arguments",
    [
        ("pod", "read"),
        ("pods",),
        ("pods", "-n", "kube-system"),
        ("configmap", "-n", "kube-system", "kube-root-ca.crt"),
        ("configmaps", "-n", "kube-system"),
        ("deployments",),
        ("runtimeclasses",),
        ("nodes",),
        ("pods", "-l", "of=none"),
        ("pods", "-l", "of in (none,some),!other"),
        ("events", "--field-selector", "involvedObject.name=read"),
        ("namespace", "default"),
    ],
    ids=" ".join,
)
def test_what_is_read_is_what_kubectl_prints(
    control_plane: RunningCluster, arguments: tuple[str, ...]
) -> None:
    control_plane.apply(pod("read"))
    try:

        def is_same() -> bool:
            printed = control_plane.kubectl("get", *arguments, "-o", "json").stdout
            return bool(control_plane.get(*arguments) == json.loads(printed))

        # The scheduler may write a status or an event between the two.
        until(is_same, "the same from both")
    finally:
        control_plane.remove("pod", "read")


def test_what_is_removed_is_gone_with_what_it_owns_or_was_not_there(
    control_plane: RunningCluster,
) -> None:
    control_plane.kubectl("create", "deployment", "removed", "--image=app:1")

    def owned() -> list[str]:
        sets = control_plane.get("replicasets", "-l", "app=removed")["items"]
        return [one["metadata"]["name"] for one in sets]

    until(lambda: bool(owned()), "the replica set")
    control_plane.remove("deployment,pod", "removed", "absent")
    assert "removed" not in control_plane.kubectl("get", "deployments").stdout
    until(lambda: not owned(), "the end of the replica set")
