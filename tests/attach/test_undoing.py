"""Undoing of installations: who keeps one on its nodes."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.api.clock import SystemClock
from moorage.api.meta import ObjectMeta
from moorage.api.runtime_installations import (
    NodeInstallation,
    RuntimeInstallation,
    RuntimeInstallationStatus,
)
from moorage.attach.detach_options import DetachOptions, Leftover
from moorage.attach.errors import AttachError
from moorage.attach.served_objects import ServedObjects
from moorage.attach.traces import Reports, installations_of, leave, undo
from tests.attach.object_server import Obj, ObjectServer, running

_BY_HAND = "on each node: moor runtime remove {} --cri ENDPOINT --data-dir /var/lib/moorage-agent"
_FINALIZER = "runtime.moorage.dev/installation"


def _installation(*nodes: NodeInstallation) -> RuntimeInstallation:
    status = RuntimeInstallationStatus(nodes=nodes)
    return RuntimeInstallation(metadata=ObjectMeta(name="i"), status=status)


def _stored(
    name: str, *nodes: Obj, finalizers: tuple[str, ...] = (_FINALIZER,), **spec: Any
) -> Obj:
    return {
        "apiVersion": "runtime.moorage.dev/v1alpha1",
        "kind": "RuntimeInstallation",
        "metadata": {"name": name, "finalizers": list(finalizers)},
        "spec": {"handler": f"h-{name}", "sources": [], **spec},
        "status": {"nodes": list(nodes)},
    }


def test_what_nodes_say_is_said_once_and_those_that_were_not_waited_for_are_known() -> None:
    said: list[str] = []
    reports = Reports(DetachOptions(said=said.append))
    node = NodeInstallation(name="n", phase="Failed", message="pods run under handler h")
    reports.changed(None, _installation(node, NodeInstallation(name="m", phase="Removing")))
    reports.changed(None, _installation(node))
    assert said == ["RuntimeInstallation i: node n is Failed: pods run under handler h"]
    reports.changed(_installation(node), None)
    assert reports.left == {"i": ("n",)}
    reports.changed(_installation(), None)
    assert reports.left == {"i": ()}


def test_what_a_node_says_is_said_again_when_it_is_something_else() -> None:
    said: list[str] = []
    reports = Reports(DetachOptions(said=said.append))
    for name, phase, message in (
        ("n", "Removing", "a"), ("m", "", "a"), ("n", "Removing", "b"), ("n", "Removing", "a"),
        ("m", "", "a"),
    ):  # fmt: skip
        node = NodeInstallation(name=name, phase=phase, message=message)
        reports.changed(None, _installation(node))
    assert said == [
        f"RuntimeInstallation i: node {text}"
        for text in ("n is undoing it: a", "m is silent: a", "n is undoing it: b",
                     "n is undoing it: a")
    ]  # fmt: skip


async def test_what_stays_after_installations_are_undone_has_its_reason() -> None:
    said: list[str] = []
    options = DetachOptions(said=said.append, timeout_s=5)
    async with running() as (server, client):
        server.put(_stored("undone", finalizers=()))
        server.put(_stored("waited"))
        server.put(_stored("kept", removalPolicy="Retain", finalizers=()))
        server.put(_stored("silent", {"name": "n1"}, {"name": "n2"}, removalPolicy="Remove"))
        _agents_remove_when_watched(server)
        left = await undo(client, ServedObjects(client), SystemClock(), options)
        assert server.of("RuntimeInstallation") == {}
    assert left == [
        Leftover("what RuntimeInstallation kept installed on nodes",
                 f"its removalPolicy is Retain; {_BY_HAND.format('h-kept')}"),
        Leftover("what RuntimeInstallation silent installed on nodes",
                 f"nodes n1, n2 were not ready to undo it; {_BY_HAND.format('h-silent')}"),
    ]  # fmt: skip
    assert said == [
        f"RuntimeInstallation {name} removed" for name in ("kept", "silent", "undone", "waited")
    ]


def _agents_remove_when_watched(server: ObjectServer) -> None:
    """Have agents undo what is deleted once the installations are watched."""

    def watched(plural: str) -> None:
        if plural == "runtimeinstallations":
            for obj in server.of("RuntimeInstallation").values():
                server.remove(obj)

    server.on_watch = watched


async def test_nodes_that_do_not_undo_an_installation_are_named() -> None:
    options = DetachOptions(said=lambda _: None, timeout_s=0.8)
    nodes = (
        {"name": "n1", "phase": "Removing"},
        {"name": "n2", "phase": "Failed", "message": "pods run"},
        {"name": "n3"},
    )
    async with running() as (server, client):
        server.put(_stored("a", *nodes))
        with pytest.raises(AttachError) as failure:
            await undo(client, ServedObjects(client), SystemClock(), options)
    assert str(failure.value).splitlines() == [
        "nodes have not undone their installations after 0.8 s; run it again to wait, or leave "
        "what is installed with --leave-runtimes",
        "  a: node n1 is undoing it",
        "  a: node n2 is Failed: pods run",
        "  a: node n3 is silent",
    ]


async def test_without_installations_there_is_nothing_to_undo() -> None:
    options = DetachOptions(said=lambda _: None, timeout_s=0)
    async with running() as (server, client):
        served = ServedObjects(client)
        assert await installations_of(served) == ()
        assert await undo(client, served, SystemClock(), options) == []
        assert await leave(served, options) == []
        assert server.writes == []


async def test_installations_that_are_left_lose_our_finalizer_alone() -> None:
    said: list[str] = []
    async with running() as (server, client):
        for name, finalizers in (
            ("a", (_FINALIZER,)), ("b", (_FINALIZER, "own/x")), ("c", ("own/x",)), ("d", ()),
        ):  # fmt: skip
            server.put(_stored(name, finalizers=finalizers))
        served = ServedObjects(client)
        assert [one["metadata"]["name"] for one in await installations_of(served)] == list("abcd")
        left = await leave(served, DetachOptions(said=said.append))
        assert {
            name: one["metadata"]["finalizers"]
            for name, one in server.of("RuntimeInstallation").items()
        } == {"b": ["own/x"], "c": ["own/x"]}
        patched = [path.rpartition("/")[2] for method, path in server.writes if method == "PATCH"]
        assert patched == ["a", "b"]
    again = "as you asked; agents that `moor attach` starts again remove it, or "
    assert left == [
        Leftover(f"what RuntimeInstallation {name} installed on nodes",
                 again + _BY_HAND.format(f"h-{name}"))
        for name in "abcd"
    ]  # fmt: skip
    assert said == [f"RuntimeInstallation {name} removed" for name in "abcd"]
