"""Pod and container events, with the kubelet's messages.

A thin layer over the recorder that sets the field path of a pod's container. Source: kubelet
`events` package; core/v1 ObjectReference `fieldPath`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from moorage.api.pods import Pod
from moorage.node.pod_facts.containers import Member
from moorage.wire.client.recorder import EventRecorder, reference
from moorage.wire.client.resources import PODS


class PodEvents:
    """Records events about pods."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder

    def pod(
        self,
        pod: Pod,
        type_: str,
        reason: str,
        message: str,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Record an event about the whole pod, with annotations of its own if any are given."""
        self._recorder.record(reference(PODS, pod), type_, reason, message, annotations)

    def container(
        self,
        pod: Pod,
        member: Member,
        type_: str,
        reason: str,
        message: str,
        *,
        container_id: str = "",
    ) -> None:
        """Record an event about a container; its ID in the message is replaced by its name."""
        if container_id:
            message = message.replace(container_id, member.name)
        about = msgspec.structs.replace(reference(PODS, pod), field_path=member.field_path)
        self._recorder.record(about, type_, reason, message)
