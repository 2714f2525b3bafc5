"""Undoing of installations: who keeps one on its nodes."""

from __future__ import annotations

from moorage.api.meta import ObjectMeta
from moorage.api.runtime_installations import (
    NodeInstallation,
    RuntimeInstallation,
    RuntimeInstallationStatus,
)
from moorage.cluster.attach.detach_options import DetachOptions
from moorage.cluster.attach.undoing import Reports


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
