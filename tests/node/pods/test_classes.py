from __future__ import annotations

from typing import Any

import pytest

from moorage.api.errors import NotFoundError, UnavailableError
from moorage.api.meta import ObjectMeta
from moorage.api.runtimeclasses import RuntimeClass
from moorage.client.resources import RUNTIME_CLASSES
from moorage.client.rest import UnreachableError
from moorage.node.pods.classes import ClassUnreadableError, RuntimeClasses
from moorage.node.runtime.views import PodView
from moorage.runtimeclass import ClassMissing
from tests.node.objects import a_pod, a_sandbox, a_view

FRESH = PodView("u")


def a_class(name: str, handler: str) -> RuntimeClass:
    return RuntimeClass(metadata=ObjectMeta(name=name), handler=handler)


class FakeServer:
    """Answers for single classes, or fails as it is told."""

    def __init__(self, *classes: RuntimeClass, failure: Exception | None = None) -> None:
        self._classes = {each.metadata.name: each for each in classes}
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
    """What the agent has heard of so far."""

    def __init__(self, *classes: RuntimeClass, is_synced: bool = True) -> None:
        self._classes = {each.metadata.name: each for each in classes}
        self._handlers: list[Any] = []
        self.is_synced = is_synced

    def get(self, name: str) -> RuntimeClass | None:
        return self._classes.get(name)

    def add_handler(self, handler: Any) -> None:
        self._handlers.append(handler)

    def tell(self, before: RuntimeClass | None, after: RuntimeClass | None) -> None:
        for handler in self._handlers:
            handler(before, after)


def classes(
    *known: RuntimeClass,
    server: FakeServer | None = None,
    is_enabled: bool = True,
    is_synced: bool = True,
) -> RuntimeClasses:
    informer: Any = FakeInformer(*known, is_synced=is_synced)
    client: Any = server or FakeServer()
    return RuntimeClasses(client, informer, is_enabled=is_enabled)


@pytest.mark.parametrize(
    ("name", "handler"), [(None, ""), ("", ""), ("legacy", ""), ("gvisor", "runsc")]
)
async def test_the_handler_a_class_names(name: str | None, handler: str) -> None:
    found = classes(a_class("gvisor", "runsc"))
    assert await found.handler(a_pod(runtimeClassName=name), FRESH) == handler


async def test_a_class_the_informer_has_not_heard_of_is_asked_for() -> None:
    server = FakeServer(a_class("new", "crun"))
    found = classes(server=server)
    assert await found.handler(a_pod(runtimeClassName="new"), FRESH) == "crun"
    assert server.asked == ["new"]


async def test_a_class_that_is_known_is_not_asked_for_again() -> None:
    server = FakeServer()
    found = classes(a_class("gvisor", "runsc"), server=server)
    await found.handler(a_pod(runtimeClassName="gvisor"), FRESH)
    assert server.asked == []


async def test_a_pod_whose_class_does_not_exist_gets_no_sandbox() -> None:
    with pytest.raises(ClassMissing, match=r'runtimeclass\.node\.k8s\.io "kgone" not found'):
        await classes().handler(a_pod(runtimeClassName="kgone"), FRESH)


async def test_a_pod_keeps_its_handler_when_its_class_has_vanished() -> None:
    view = a_view(a_sandbox(handler="runsc", is_ready=False))
    assert await classes().handler(a_pod(runtimeClassName="gone"), view) == "runsc"


async def test_a_class_made_again_counts_with_its_new_handler() -> None:
    view = a_view(a_sandbox(handler="runsc", is_ready=False))
    found = classes(a_class("sandboxed", "kata"))
    assert await found.handler(a_pod(runtimeClassName="sandboxed"), view) == "kata"


@pytest.mark.parametrize("failure", [UnavailableError("overloaded"), UnreachableError("no route")])
async def test_a_server_that_does_not_say_is_asked_again_later(failure: Exception) -> None:
    found = classes(server=FakeServer(failure=failure))
    with pytest.raises(ClassUnreadableError, match="failed to lookup RuntimeClass x: "):
        await found.handler(a_pod(runtimeClassName="x"), FRESH)


async def test_with_the_gate_off_what_pods_name_is_ignored() -> None:
    found = classes(is_enabled=False)
    assert await found.handler(a_pod(runtimeClassName="gone"), FRESH) == ""
    assert found.named_by(a_pod(runtimeClassName="gone")) is None
    assert not found.is_gone(a_pod(runtimeClassName="gone"))


@pytest.mark.parametrize(
    ("name", "is_synced", "is_gone"),
    [("gone", True, True), ("gone", False, False), ("here", True, False), (None, True, False)],
)
def test_a_class_is_gone_only_when_all_are_known(
    name: str | None, is_synced: bool, is_gone: bool
) -> None:
    found = classes(a_class("here", "runc"), is_synced=is_synced)
    assert found.is_gone(a_pod(runtimeClassName=name)) is is_gone


def test_every_change_is_told_by_name() -> None:
    informer = FakeInformer()
    heard: list[str] = []
    found = RuntimeClasses(FakeServer(), informer, is_enabled=True)  # type: ignore[arg-type]
    found.on_change(heard.append)
    informer.tell(None, a_class("new", "runc"))
    informer.tell(a_class("old", "runc"), None)
    assert heard == ["new", "old"]
