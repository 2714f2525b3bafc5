"""Probe pods: what their events say."""

from __future__ import annotations

import pytest

from moorage.probing.pod_carrier import is_refusal


@pytest.mark.parametrize(
    ("reason", "message", "refuses"),
    [
        ("FailedCreatePodSandBox", "rpc error: code = Unknown desc = OCI runtime create", True),
        ("FailedCreatePodSandBox", "rpc error: code = Unavailable desc = shim is busy", True),
        (
            "FailedCreatePodSandBox",
            "rpc error: code = Unavailable desc = connection error: desc = dial unix /run/c.sock",
            False,
        ),
        (
            "FailedCreatePodSandBox",
            "rpc error: code = Unavailable desc = error reading from server: EOF",
            False,
        ),
        (
            "FailedCreatePodSandBox",
            'RuntimeClass.node.k8s.io: runtimeclass.node.k8s.io "moorage-probe-x.n" not found',
            False,
        ),
        ("RuntimeHandlerUnknown", "there is no handler x", True),
        ("Pulled", "rpc error", False),
    ],
)
def test_a_kubelet_that_does_not_reach_its_engine_refuses_nothing(
    reason: str, message: str, refuses: bool
) -> None:
    assert is_refusal(reason, message) == refuses
