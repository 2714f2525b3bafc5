"""Network of a whole cluster: names, Services and policies, under crun and gVisor, after kills."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.running import RunningCluster, pod, runtime_class, until

pytestmark = [pytest.mark.runtime, pytest.mark.slow]
_SERVE = "while true; do echo hello | nc -l -p 8080; done"


class App:
    """A server behind a Service, and clients under two runtimes, in a namespace of their own."""

    def __init__(self, cluster: RunningCluster) -> None:
        self.cluster = cluster
        self.namespace = f"net-{uuid.uuid4().hex[:8]}"

    def named(self, document: dict[str, Any], **labels: str) -> dict[str, Any]:
        document["metadata"] |= {"namespace": self.namespace, "labels": labels}
        return document

    def start(self) -> None:
        self.cluster.create_namespace(self.namespace)
        server = pod("server", runtime_class="crun", container={"command": ["sh", "-c", _SERVE]})
        service: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
        }
        clients = [
            self.named(pod(name, runtime_class=name), role="client") for name in ("crun", "gvisor")
        ]
        self.cluster.apply(self.named(server, app="web"), self.named(service), *clients)
        self.cluster.wait_ready("server", "crun", "gvisor", namespace=self.namespace)

    def call(self, client: str, host: str = "web") -> str:
        """Return what a client gets from the server, or the error."""
        command = ["sh", "-c", f"nc -w 5 {host} 80 2>&1 || true"]
        return self.cluster.kubectl(
            "exec", "-n", self.namespace, client, "--", *command
        ).stdout.strip()

    def is_reached(self, client: str, host: str = "web") -> bool:
        return self.call(client, host) == "hello"

    def policy(self, name: str, **spec: Any) -> dict[str, Any]:
        return self.named(
            {
                "apiVersion": "networking.k8s.io/v1",
                "kind": "NetworkPolicy",
                "metadata": {"name": name},
                "spec": {"podSelector": {}, **spec},
            }
        )


@pytest.fixture(scope="module")
def app(whole_cluster: RunningCluster) -> Iterator[App]:
    app = App(whole_cluster)
    app.start()
    yield app
    whole_cluster.remove("namespace", app.namespace)


@pytest.mark.parametrize("client", ["crun", "gvisor"])
def test_a_service_is_reached_by_its_names(app: App, client: str) -> None:
    for name in ("web", f"web.{app.namespace}", f"web.{app.namespace}.svc.cluster.local"):
        until(partial(app.is_reached, client, name), f"an answer of {name}", 30)


@pytest.mark.parametrize("client", ["crun", "gvisor"])
def test_a_policy_shuts_and_opens(app: App, client: str) -> None:
    until(lambda: app.is_reached(client), "an answer", 30)
    app.cluster.apply(app.policy("deny"))
    try:
        until(lambda: "No route to host" in app.call(client), "a refusal", 30)
        rule = {"from": [{"podSelector": {"matchLabels": {"role": "client"}}}]}
        app.cluster.apply(app.policy("allow", ingress=[rule]))
        until(lambda: app.is_reached(client), "an answer", 30)
    finally:
        for name in ("deny", "allow"):
            app.cluster.kubectl(
                "delete", "networkpolicy", name, "-n", app.namespace, "--ignore-not-found"
            )
    until(lambda: app.is_reached(client), "an answer", 30)


@pytest.mark.parametrize("part", ["dns", "node"])
def test_after_a_kill_names_and_policies_are_as_before(app: App, part: str) -> None:
    app.cluster.apply(app.policy("deny", podSelector={"matchLabels": {"role": "client"}}))
    try:
        killed = app.cluster.part(part)
        os.kill(killed["pid"], signal.SIGKILL)

        def is_back() -> bool:
            now = app.cluster.part(part)
            return bool(now["state"] == "ready" and now["pid"] != killed["pid"])

        until(is_back, f"another {part}", 60)
        until(lambda: app.is_reached("crun"), "an answer", 60)
        command = ["exec", "-n", app.namespace, "server", "--", "nc", "-w", "2"]
        address = app.cluster.get("pod", "crun", "-n", app.namespace)["status"]["podIP"]
        refused = app.cluster.kubectl(*command, address, "8080", fails=True)
        assert "No route to host" in refused.stderr
    finally:
        app.cluster.kubectl("delete", "networkpolicy", "deny", "-n", app.namespace)


def test_a_class_without_network_reaches_nothing(app: App) -> None:
    shut = runtime_class("shut-network", "crun")
    shut["metadata"]["annotations"] = {"runtime.moorage.dev/network": "none"}
    app.cluster.apply(shut, app.named(pod("shut", runtime_class="shut-network")))
    try:
        app.cluster.wait_ready("shut", namespace=app.namespace)
        service = app.cluster.get("service", "web", "-n", app.namespace)["spec"]["clusterIP"]
        assert "No route to host" in app.call("shut", service)
    finally:
        app.cluster.remove("runtimeclass", "shut-network")
