"""Detaching: which pods it waits for."""

from __future__ import annotations

from moorage.api.meta import ObjectMeta
from moorage.api.pods import Pod, PodStatus
from moorage.cluster.attach.detachment import unended


def test_pods_that_have_ended_are_not_waited_for() -> None:
    phases = ("Running", "Failed", "Pending", "Succeeded", "")
    pods = [
        Pod(metadata=ObjectMeta(name=f"pod{index}"), status=PodStatus(phase=phase))
        for index, phase in enumerate(phases)
    ]
    assert unended(pods) == ["pod0", "pod2", "pod4"]
