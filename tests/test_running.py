"""Reads of tests without kubectl: they are what kubectl prints."""

from __future__ import annotations

import json

import pytest

from tests.running import RunningCluster, pod


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
    ],
    ids=" ".join,
)
def test_what_is_read_is_what_kubectl_prints(
    control_plane: RunningCluster, arguments: tuple[str, ...]
) -> None:
    control_plane.apply(pod("read"))
    try:
        printed = control_plane.kubectl("get", *arguments, "-o", "json").stdout
        assert control_plane.get(*arguments) == json.loads(printed)
    finally:
        control_plane.kubectl("delete", "pod", "read")
