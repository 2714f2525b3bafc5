"""What an event about a pod or one of its containers points at."""

from __future__ import annotations

from typing import Any

from moorage.node.pod_facts.containers import members
from moorage.node.pod_facts.events import PodEvents
from tests.node.objects import UID, a_pod


class Recorder:
    def __init__(self) -> None:
        self.recorded: list[tuple[Any, ...]] = []

    def record(self, *event: Any) -> None:
        self.recorded.append(event)


def test_a_pod_and_its_containers_are_pointed_at() -> None:
    recorder: Any = Recorder()
    events = PodEvents(recorder)
    pod = a_pod()
    member = next(iter(members(pod.spec)))
    events.pod(pod, "Normal", "Why", "what")
    events.container(pod, member, "Warning", "Because", "abc failed", container_id="abc")
    events.container(pod, member, "Warning", "Because", "abc failed")
    (whole, *rest), (part, *more), (_, *last) = recorder.recorded
    assert rest == ["Normal", "Why", "what", None]
    assert more == ["Warning", "Because", f"{member.name} failed"]
    assert last == ["Warning", "Because", "abc failed"]
    for about in (whole, part):
        assert (about.kind, about.name, about.namespace, about.uid) == ("Pod", "web", "shop", UID)
    assert (whole.field_path or "", part.field_path) == ("", member.field_path)
