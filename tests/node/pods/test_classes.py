from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from moorage.api.errors import NotFoundError, UnavailableError
from moorage.api.meta import ObjectMeta
from moorage.api.pods import Pod
from moorage.api.runtime_group import RuntimeClass
from moorage.node.paths import NodePaths
from moorage.node.pods.handler_choice import HandlerError, HandlerRecords, RuntimeClasses
from moorage.node.runtime.views import PodView
from moorage.wire.client.resources import RUNTIME_CLASSES
from moorage.wire.client.rest import UnreachableError
from tests.node.objects import UID, a_pod, a_sandbox, a_view

FRESH = PodView("u")
_ROOT = tempfile.TemporaryDirectory()


POD_MADE = "2026-01-01T00:00:05Z"


def a_class(name: str, handler: str, made: str = "2026-01-01T00:00:00Z") -> RuntimeClass:
    meta = ObjectMeta(name=name, creation_timestamp=made)
    return RuntimeClass(metadata=meta, handler=handler)


def pod_of(name: str | None) -> Pod:
    return a_pod(meta={"creationTimestamp": POD_MADE}, runtimeClassName=name)


class FakeServer:
    """Answers for single classes, or fails as configured."""

    def __init__(self, *classes: RuntimeClass, failure: Exception | None = None) -> None:
        self._classes = {runtime_class.metadata.name: runtime_class for runtime_class in classes}
        self._failure = failure
        self.asked: list[str] = []

    async def get(self, resource: Any, name: str) -> RuntimeClass:
        assert resource is RUNTIME_CLASSES
        self.asked.append(name)
        if self._failure is not None:
            raise self._failure
        if name not in self._classes:
            raise NotFoundError.of("runtimeclasses", name, group="node.k8s.io")
        return self._classes[name]


class FakeInformer:
    """The classes that the agent's watch has received so far."""

    def __init__(self, *classes: RuntimeClass, is_synced: bool = True) -> None:
        self._classes = {runtime_class.metadata.name: runtime_class for runtime_class in classes}
        self._handlers: list[Any] = []
        self.is_synced = is_synced

    def get(self, name: str) -> RuntimeClass | None:
        return self._classes.get(name)

    def add_handler(self, handler: Any) -> None:
        self._handlers.append(handler)

    def notify(self, before: RuntimeClass | None, after: RuntimeClass | None) -> None:
        for handler in self._handlers:
            handler(before, after)


def classes(
    *known: RuntimeClass,
    server: FakeServer | None = None,
    is_enabled: bool = True,
    is_synced: bool = True,
    root: Path | None = None,
) -> RuntimeClasses:
    informer: Any = FakeInformer(*known, is_synced=is_synced)
    client: Any = server or FakeServer()
    root = root or Path(tempfile.mkdtemp(dir=_ROOT.name))
    records = HandlerRecords(NodePaths(root, root / "logs"))
    return RuntimeClasses(client, informer, records, is_enabled=is_enabled)


@pytest.mark.parametrize(
    ("name", "handler"), [(None, ""), ("", ""), ("legacy", ""), ("gvisor", "runsc")]
)
async def test_the_handler_a_class_names(name: str | None, handler: str) -> None:
    runtime_classes = classes(a_class("gvisor", "runsc"))
    assert await runtime_classes.handler(a_pod(runtimeClassName=name), FRESH) == handler


async def test_class_unknown_to_the_informer_is_fetched() -> None:
    server = FakeServer(a_class("new", "crun"))
    runtime_classes = classes(server=server)
    assert await runtime_classes.handler(a_pod(runtimeClassName="new"), FRESH) == "crun"
    assert server.asked == ["new"]


async def test_a_class_that_is_known_is_not_asked_for_again() -> None:
    server = FakeServer()
    runtime_classes = classes(a_class("gvisor", "runsc"), server=server)
    await runtime_classes.handler(a_pod(runtimeClassName="gvisor"), FRESH)
    assert server.asked == []


async def test_a_pod_whose_class_does_not_exist_gets_no_sandbox() -> None:
    with pytest.raises(HandlerError, match=r'runtimeclass\.node\.k8s\.io "kgone" not found'):
        await classes().handler(a_pod(runtimeClassName="kgone"), FRESH)


async def test_a_pod_keeps_its_handler_when_its_class_has_vanished() -> None:
    view = a_view(a_sandbox(handler="runsc", is_ready=False))
    assert await classes().handler(a_pod(runtimeClassName="gone"), view) == "runsc"


async def test_a_class_made_again_with_another_handler_changes_no_pod() -> None:
    view = a_view(a_sandbox(handler="runsc", is_ready=False))
    runtime_classes = classes(a_class("sandboxed", "kata"))
    pod = a_pod(runtimeClassName="sandboxed")
    assert await runtime_classes.handler(pod, view) == "runsc"
    assert runtime_classes.replacing_handler(pod, "runsc") == "kata"


async def test_the_first_answer_is_kept_for_later_agents_whatever_becomes_of_the_class(
    tmp_path: Path,
) -> None:
    pod = pod_of("sandboxed")
    assert await classes(a_class("sandboxed", "runsc"), root=tmp_path).handler(pod, FRESH) == (
        "runsc"
    )
    for later in (
        classes(root=tmp_path),
        classes(a_class("sandboxed", "kata"), root=tmp_path),
        classes(root=tmp_path, is_enabled=False),
        classes(root=tmp_path, server=FakeServer(failure=UnreachableError("no route"))),
    ):
        assert await later.handler(pod, FRESH) == "runsc"
        assert later.known_handler(pod, FRESH) == "runsc"


async def test_a_pod_admitted_while_the_gate_was_off_keeps_the_default(tmp_path: Path) -> None:
    pod = pod_of("sandboxed")
    known = a_class("sandboxed", "runsc")
    assert await classes(known, root=tmp_path, is_enabled=False).handler(pod, FRESH) == ""
    assert await classes(known, root=tmp_path).handler(pod, FRESH) == ""


SILENT = a_view(a_sandbox(handler=None, is_ready=False))
"""A sandbox of an earlier version on an engine that does not report handlers."""


async def test_a_class_older_than_the_pod_says_what_it_was_admitted_with(tmp_path: Path) -> None:
    runtime_classes = classes(a_class("sandboxed", "runsc"), root=tmp_path)
    assert runtime_classes.known_handler(pod_of("sandboxed"), SILENT) is None
    assert await runtime_classes.handler(pod_of("sandboxed"), SILENT) == "runsc"
    assert await classes(root=tmp_path).handler(pod_of("sandboxed"), SILENT) == "runsc"


@pytest.mark.parametrize(
    ("known", "is_enabled", "why"),
    [
        ((), True, "the class does not exist any more"),
        ((a_class("sandboxed", "runc", "2026-01-01T00:00:06Z"),), True, "after the pod"),
        ((a_class("sandboxed", "runc"),), False, "the feature gate RuntimeClass is off"),
    ],
)
@pytest.mark.parametrize("is_damaged", [False, True])
async def test_where_nothing_says_the_handler_none_is_chosen(
    tmp_path: Path,
    known: tuple[RuntimeClass, ...],
    is_enabled: bool,
    why: str,
    is_damaged: bool,
) -> None:
    if is_damaged:
        # Cut off by a power failure, and its sandboxes gone with it.
        record = tmp_path / "pods" / UID / "runtime-handler"
        record.parent.mkdir(parents=True)
        record.write_text("")
    runtime_classes = classes(*known, root=tmp_path, is_enabled=is_enabled)
    with pytest.raises(HandlerError, match=f"{why}.*delete the pod"):
        await runtime_classes.handler(pod_of("sandboxed"), FRESH if is_damaged else SILENT)


@pytest.mark.parametrize("name", [None, "", "legacy"])
async def test_a_pod_without_class_has_the_default_whatever_the_engine_reports(
    tmp_path: Path, name: str | None
) -> None:
    runtime_classes = classes(root=tmp_path)
    assert await runtime_classes.handler(pod_of(name), SILENT) == ""
    assert runtime_classes.known_handler(pod_of(name), SILENT) == ""
    assert not (tmp_path / "pods").exists()


@pytest.mark.parametrize("failure", [UnavailableError("overloaded"), UnreachableError("no route")])
async def test_a_server_that_does_not_say_is_asked_again_later(failure: Exception) -> None:
    runtime_classes = classes(server=FakeServer(failure=failure))
    with pytest.raises(HandlerError, match="failed to lookup RuntimeClass x: "):
        await runtime_classes.handler(a_pod(runtimeClassName="x"), FRESH)


async def test_with_the_gate_off_what_pods_name_is_ignored() -> None:
    runtime_classes = classes(is_enabled=False)
    assert await runtime_classes.handler(a_pod(runtimeClassName="gone"), FRESH) == ""
    assert runtime_classes.named_by(a_pod(runtimeClassName="gone")) is None
    assert not runtime_classes.is_gone(a_pod(runtimeClassName="gone"))


@pytest.mark.parametrize(
    ("name", "is_synced", "is_gone"),
    [("gone", True, True), ("gone", False, False), ("here", True, False), (None, True, False)],
)
def test_a_class_is_gone_only_when_all_are_known(
    name: str | None, is_synced: bool, is_gone: bool
) -> None:
    runtime_classes = classes(a_class("here", "runc"), is_synced=is_synced)
    assert runtime_classes.is_gone(a_pod(runtimeClassName=name)) is is_gone


def test_every_change_is_reported_by_name() -> None:
    informer = FakeInformer()
    changed: list[str] = []
    runtime_classes = RuntimeClasses(FakeServer(), informer, None, is_enabled=True)  # type: ignore[arg-type]
    runtime_classes.on_change(changed.append)
    informer.notify(None, a_class("new", "runc"))
    informer.notify(a_class("old", "runc"), None)
    assert changed == ["new", "old"]
