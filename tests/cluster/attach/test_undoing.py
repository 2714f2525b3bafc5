"""Undoing of installations: who keeps one on its nodes."""

from __future__ import annotations

from typing import Any

from moorage.api.meta import ObjectMeta
from moorage.api.runtime_installations import (
    NodeInstallation,
    RuntimeInstallation,
    RuntimeInstallationStatus,
)
from moorage.cluster.attach.detach_options import DetachOptions
from moorage.cluster.attach.undoing import Reports, pods_under


def _class(name: str, handler: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "handler": handler}


def _pod(name: str, runtime_class: str, node: str = "n", phase: str = "Running") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "d"},
        "spec": {"runtimeClassName": runtime_class, "nodeName": node},
        "status": {"phase": phase},
    }


def test_pods_on_nodes_under_any_class_of_the_handler_keep_it() -> None:
    classes = [_class("a", "h"), _class("b", "h"), _class("c", "other")]
    pods = [
        _pod("2", "b"),
        _pod("1", "a", phase="Pending"),
        _pod("3", "c"),
        _pod("ended", "a", phase="Succeeded"),
        _pod("waiting", "a", node=""),
        {**_pod("probe", "a"), "metadata": {"name": "probe", "namespace": "moorage-probes"}},
        {"metadata": {"name": "plain", "namespace": "d"}, "spec": {"nodeName": "n"}},
    ]
    assert pods_under("h", classes, pods) == ("d/1", "d/2")
    assert pods_under("absent", classes, pods) == ()


def _installation(*nodes: NodeInstallation) -> RuntimeInstallation:
    status = RuntimeInstallationStatus(nodes=nodes)
    return RuntimeInstallation(metadata=ObjectMeta(name="i"), status=status)


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
