from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from moorage.node.configuration import (
    ConfigurationError,
    NodeConfiguration,
    load_configuration,
    parse_configuration,
)
from moorage.node.pressure.thresholds import DEFAULT_HARD, EvictionOptions
from moorage.node.shutdown_periods import ShutdownPeriod

HEADER = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({}, {}),
        ({"evictionHard": None}, {}),
        ({"evictionHard": {}}, {"hard": {}}),
        ({"evictionHard": {"pid.available": "5%"}}, {"hard": {"pid.available": "5%"}}),
        (
            {"evictionHard": {"pid.available": "5%"}, "mergeDefaultEvictionSettings": True},
            {"hard": {**DEFAULT_HARD, "pid.available": "5%"}},
        ),
        (
            {
                "evictionSoft": {"memory.available": "1Gi"},
                "evictionSoftGracePeriod": {"memory.available": "1m"},
                "evictionMinimumReclaim": {"memory.available": "100Mi"},
                "evictionPressureTransitionPeriod": "30s",
                "evictionMaxPodGracePeriod": 60,
            },
            {
                "soft": {"memory.available": "1Gi"},
                "soft_grace": {"memory.available": "1m"},
                "minimum_reclaim": {"memory.available": "100Mi"},
                "transition_s": 30.0,
                "max_pod_grace_s": 60,
            },
        ),
    ],
)
def test_the_fields_of_a_kubelet_configuration_are_read(fields: Any, options: Any) -> None:
    wanted = NodeConfiguration(EvictionOptions(**options))
    assert parse_configuration({**HEADER, **fields}) == wanted


@pytest.mark.parametrize(
    ("fields", "periods"),
    [
        ({"shutdownGracePeriod": "0s", "shutdownGracePeriodCriticalPods": "0s"}, []),
        ({"shutdownGracePeriod": "1m0s"}, [(0, 60), (2_000_000_000, 0)]),
        (
            {"shutdownGracePeriod": "30s", "shutdownGracePeriodCriticalPods": "10s"},
            [(0, 20), (2_000_000_000, 10)],
        ),
        (
            {
                "shutdownGracePeriodByPodPriority": [
                    {"priority": 5, "shutdownGracePeriodSeconds": 3},
                    {"shutdownGracePeriodSeconds": 9},
                ]
            },
            [(0, 9), (5, 3)],
        ),
    ],
)
def test_the_grace_periods_of_a_shutdown_are_read(fields: Any, periods: Any) -> None:
    wanted = tuple(ShutdownPeriod(*period) for period in periods)
    assert parse_configuration({**HEADER, **fields}).shutdown_periods == wanted


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (None, "it is no KubeletConfiguration"),
        ({"kind": "KubeletConfiguration"}, "apiVersion must be kubelet.config.k8s.io/v1beta1"),
        ({**HEADER, "kind": "Pod"}, "kind must be KubeletConfiguration, not 'Pod'"),
        ({**HEADER, "maxPods": 5}, "field maxPods is not one of this node agent's: evictionHard"),
        ({**HEADER, "evictionHard": []}, "field evictionHard: it must be an object"),
        ({**HEADER, "evictionHard": {"a": 5}}, "field evictionHard: it must be an object"),
        ({**HEADER, "evictionHard": {"a": "5"}}, "unsupported eviction signal a"),
        ({**HEADER, "evictionMaxPodGracePeriod": -1}, "field evictionMaxPodGracePeriod: it must"),
        ({**HEADER, "evictionMaxPodGracePeriod": True}, "field evictionMaxPodGracePeriod: it"),
        ({**HEADER, "evictionMaxPodGracePeriod": 2**31}, "from 0 to 2147483647"),
        ({**HEADER, "staticPodPath": "/a\0b"}, "it must be an absolute path"),
        ({**HEADER, "evictionPressureTransitionPeriod": 5}, "it must be a duration"),
        ({**HEADER, "evictionPressureTransitionPeriod": "x"}, "'x' is not a duration"),
        ({**HEADER, "shutdownGracePeriod": 5}, "field shutdownGracePeriod: it must be a duration"),
        ({**HEADER, "shutdownGracePeriodCriticalPods": "5s"}, "5s must be <= shutdownGracePeriod"),
        ({**HEADER, "shutdownGracePeriodByPodPriority": {}}, "it must be a list"),
        ({**HEADER, "shutdownGracePeriodByPodPriority": ["x"]}, "each element has the fields prio"),
        ({**HEADER, "shutdownGracePeriodByPodPriority": [{"x": 1}]}, "each element has the fields"),
        (
            {**HEADER, "shutdownGracePeriodByPodPriority": [{"priority": "x"}]},
            "priority must be a number",
        ),
        (
            {**HEADER, "shutdownGracePeriodByPodPriority": [{"shutdownGracePeriodSeconds": -1}]},
            "it must be a number of seconds",
        ),
        ({**HEADER, "mergeDefaultEvictionSettings": "yes"}, "it must be true or false"),
    ],
)
def test_what_cannot_be_used_is_named(document: Any, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_configuration(document)
    assert message in str(caught.value)


def test_a_file_is_named_in_every_complaint(tmp_path: Path) -> None:
    file = tmp_path / "kubelet.yaml"
    for text, message in (
        (None, "No such file or directory"),
        ("a: [", "node configuration"),
        ("kind: Pod", "apiVersion must be"),
        (" " * (1024 * 1024 + 1), "larger than 1 MiB"),
    ):
        if text is not None:
            file.write_text(text)
        with pytest.raises(ConfigurationError, match=f"node configuration {file}: ") as caught:
            load_configuration(file)
        assert message in str(caught.value)
    file.write_text("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n")
    assert load_configuration(file) == NodeConfiguration()


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "kubelet.yaml"
    os.mkfifo(pipe)
    with pytest.raises(ConfigurationError, match="it is not a regular file"):
        load_configuration(pipe)
