"""What measurements that were killed left behind."""

from __future__ import annotations

from typing import Any

from moorage.api.runtime_group import MEASUREMENT_LABEL
from moorage.runtimes.overhead.measurement import delete_leftovers
from moorage.runtimes.overhead.probe_pods import EXPIRES_ANNOTATION
from moorage.wire.client.resources import RUNTIME_CLASSES
from tests.clocks import FakeClock
from tests.controllers.memory import MemoryClient


def runtime_class(name: str, run: str, expires: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "labels": {MEASUREMENT_LABEL: run},
            "annotations": {EXPIRES_ANNOTATION: expires},
        },
        "handler": "h",
    }


async def test_only_measurements_past_their_time_go() -> None:
    client: Any = MemoryClient(FakeClock())
    for left in (
        runtime_class("past", "r1", "2000-01-01T00:00:00Z"),
        runtime_class("going-on", "r2", "2999-01-01T00:00:00Z"),
        runtime_class("without-run", "", "2000-01-01T00:00:00Z"),
        runtime_class("unreadable", "r3", "soon"),
    ):
        client.put(RUNTIME_CLASSES, left)
    await delete_leftovers(client, "probes", FakeClock())
    assert client.names(RUNTIME_CLASSES) == ["going-on", "unreadable", "without-run"]
    (pods,) = (request for request in client.requests if request.verb == "deletecollection")
    assert pods.plural == "pods"
    assert pods.key.startswith("probes")
    assert pods.more == {"label_selector": f"{MEASUREMENT_LABEL}=r1"}
