"""Applying: a new version of the class, or a change in place; nothing twice, nothing unfounded."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.runtime_group import (
    MEASURED_AT_ANNOTATION,
    MEASURED_OVERHEAD_ANNOTATION,
    PREVIOUS_OVERHEAD_ANNOTATION,
    VERSION_OF_ANNOTATION,
)
from moorage.runtimes.overhead import MeasurementError, Report
from moorage.runtimes.overhead.applying import Applied, apply_report
from moorage.runtimes.overhead.options import MeasureOptions, find_class
from moorage.runtimes.overhead.report import ProbePod
from moorage.wire.client.resources import RUNTIME_CLASSES
from tests.controllers.memory import World
from tests.runtimes.overhead.test_plots import SAMPLES, report


class Server:
    """An API server with some classes."""

    def __init__(self, *classes: dict[str, Any]) -> None:
        self.client = World().client
        for one in classes:
            self.client.put(RUNTIME_CLASSES, one)
        self.refresh()

    def refresh(self) -> None:
        items = self.client.all(RUNTIME_CLASSES)
        self.client.answers["GET", RUNTIME_CLASSES.path()] = msgspec.json.encode({"items": items})

    async def apply(self, applied: Report, *, in_place: bool = False) -> Applied:
        done = await apply_report(self.client, applied, in_place=in_place)
        self.refresh()
        return done

    def find(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] | None = self.client.find(RUNTIME_CLASSES, name)
        assert found is not None
        return found


def box(name: str = "box", handler: str = "h$1", **annotations: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "annotations": annotations},
        "handler": handler,
        "overhead": {"podFixed": {"memory": "8Mi"}},
        "scheduling": {"nodeSelector": {"a": "b"}},
    }


async def test_a_proposal_becomes_a_new_version_once() -> None:
    server = Server(box())
    assert await server.apply(report(*SAMPLES)) == Applied("box-v2", is_changed=True)
    version = server.find("box-v2")
    assert version["overhead"] == {"podFixed": {"cpu": "2m", "memory": "22Mi"}}
    assert version["scheduling"] == {"nodeSelector": {"a": "b"}}
    assert version["metadata"]["annotations"][VERSION_OF_ANNOTATION] == "box"
    assert version["metadata"]["annotations"][MEASURED_AT_ANNOTATION] == "2026-01-01T00:00:00Z"
    assert "3 pods" in version["metadata"]["annotations"][MEASURED_OVERHEAD_ANNOTATION]
    assert server.find("box")["overhead"] == {"podFixed": {"memory": "8Mi"}}
    assert await server.apply(report(*SAMPLES)) == Applied("box-v2", is_changed=False)
    assert server.client.names(RUNTIME_CLASSES) == ["box", "box-v2"]


async def test_a_change_in_place_keeps_the_previous_overhead_and_happens_once() -> None:
    server = Server(box())
    assert (await server.apply(report(*SAMPLES), in_place=True)).is_changed
    changed = server.find("box")
    assert changed["overhead"] == {"podFixed": {"cpu": "2m", "memory": "22Mi"}}
    assert changed["metadata"]["annotations"][PREVIOUS_OVERHEAD_ANNOTATION] == '{"memory":"8Mi"}'
    assert not (await server.apply(report(*SAMPLES), in_place=True)).is_changed
    assert server.client.names(RUNTIME_CLASSES) == ["box"]


async def test_a_report_with_failures_is_no_basis() -> None:
    server, measured = Server(box()), report(*SAMPLES)
    failed = msgspec.structs.replace(measured.pods[0], sample=None, error="broke")
    partly = msgspec.structs.replace(measured, pods=(*measured.pods, failed))
    assert isinstance(failed, ProbePod)
    for unfounded in (partly, report(), msgspec.structs.replace(measured, runtime_class="")):
        with pytest.raises(MeasurementError, match="nothing is applied"):
            await server.apply(unfounded)
    assert server.client.writes == []


async def test_a_class_that_was_deleted_meanwhile_is_an_error() -> None:
    with pytest.raises(MeasurementError, match="deleted meanwhile"):
        await Server().apply(report(*SAMPLES))


@pytest.mark.parametrize(
    ("classes", "wanted", "expected"),
    [
        ([], "", None),
        ([box()], "", "box"),
        ([box(), box("box-v2", **{VERSION_OF_ANNOTATION: "box"})], "", "box-v2"),
        ([box("h", "h"), box("other", "h")], "", "h"),
        ([box("a"), box("b")], "b", "b"),
    ],
)
async def test_the_class_of_a_handler(
    classes: list[dict[str, Any]], wanted: str, expected: str | None
) -> None:
    handler = classes[0]["handler"] if classes else "h$1"
    options = MeasureOptions(handler=handler, runtime_class=wanted)
    found = await find_class(Server(*classes).client, options)
    assert (found.metadata.name if found else None) == expected


async def test_an_ambiguous_or_wrong_class_is_refused() -> None:
    server = Server(box("a"), box("b"), box("c", "other"))
    with pytest.raises(MeasurementError, match="several classes have the handler h\\$1: a, b"):
        await find_class(server.client, MeasureOptions(handler="h$1"))
    with pytest.raises(MeasurementError, match="class c has the handler other"):
        await find_class(server.client, MeasureOptions(handler="h$1", runtime_class="c"))
