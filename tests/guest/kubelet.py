"""The kubelet of the guest: a stock one under systemd, with static pods and no API server.

    guest ─▶ units, configuration, network ─▶ engine ─▶ images ─▶ kubelet ─▶ Node

Without an API server there are no classes: a pod runs under the engine's default handler, which a
handler's file in /etc/moorage/handlers.d chooses. In an emulated guest one would take minutes more.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
import urllib.parse
from http import HTTPStatus
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.test_engine_service import unit
from tests.documents import HOW_TO, blocks
from tests.guest.machine import FILES, Guest
from tests.guest.preparation import HOSTNAME, VENV
from tests.running import BUSYBOX

WITHIN_S = 900.0
SLICE = "/sys/fs/cgroup/kubepods.slice"
PODS = f"{SLICE}/kubepods-burstable.slice/kubepods-burstable-pod*.slice"
MANIFESTS = "/etc/kubernetes/manifests"
_PORT = 10250
_ANSWER_WITHIN_S = 30.0
_SOCKET = "unix:///run/moorage-engine/engine.sock"
_UNIT = f"""
[Unit]
After=moorage-engine.service
[Service]
ExecStart={FILES}/kubelet --config /etc/kubernetes/kubelet.json --hostname-override {HOSTNAME}
Restart=always
[Install]
WantedBy=multi-user.target
"""
_CONFIGURATION = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "containerRuntimeEndpoint": _SOCKET,
    # The engine's answer goes before it.
    "cgroupDriver": "cgroupfs",
    "staticPodPath": MANIFESTS,
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "runtimeRequestTimeout": "10m",
    "featureGates": {"PodAndContainerStatsFromCRI": True},
}
_LOAD = f"""
import asyncio, pathlib
from moorage.cluster.images.loading import load_archive
asyncio.run(load_archive({_SOCKET!r}, pathlib.Path("{FILES}/images.tar")))
"""
_SLOW = "[Service]\nTimeoutStartSec=900\nTimeoutStopSec=300\n"


class _Connection(http.client.HTTPSConnection):
    """A connection to the kubelet by a Unix socket that is forwarded to it."""

    def __init__(self, path: Path, within_s: float) -> None:
        super().__init__("guest", timeout=within_s)
        self._path = path

    def connect(self) -> None:
        plain = socket.socket(socket.AF_UNIX)
        plain.settimeout(self.timeout)
        plain.connect(str(self._path))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # The kubelet signs its certificate itself.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        self.sock = context.wrap_socket(plain)


class Node:
    """The guest with an engine and a kubelet that run."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest

    def get(self, path: str) -> str:
        """Return the kubelet's answer, once it answers. Raises AssertionError, OSError."""
        deadline = time.monotonic() + WITHIN_S
        while True:
            try:
                return self._request("GET", path, _ANSWER_WITHIN_S)
            except (OSError, http.client.HTTPException):
                # The kubelet does not listen yet, or is being started again.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def _request(self, method: str, path: str, within_s: float) -> str:
        connection = _Connection(self.guest.forwarded(_PORT), within_s)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
        finally:
            connection.close()
        assert answer.status == HTTPStatus.OK, f"{method} {path}: {answer.status}: {text}"
        return text

    def pods(self) -> dict[str, dict[str, Any]]:
        """Return each pod's object by the name that its manifest has."""
        pods = json.loads(self.get("/pods"))["items"] or ()
        return {pod["metadata"]["name"].removesuffix(f"-{HOSTNAME}"): pod for pod in pods}

    def container(self, pod: str, name: str) -> dict[str, Any]:
        """Return a container's status; empty as long as there is none."""
        status = self.pods().get(pod, {}).get("status", {})
        found = [one for one in status.get("containerStatuses", ()) if one["name"] == name]
        return dict(found[0]) if found else {}

    def run(self, pod: str, container: str, *words: str) -> str:
        """Run a command in a container; return its output. Raises OSError."""
        query = urllib.parse.urlencode({"cmd": " ".join(words)})
        return self._request("POST", f"/run/default/{pod}-{HOSTNAME}/{container}?{query}", WITHIN_S)

    def use(self, handler: str) -> None:
        """Make a handler the default one, and wait until it is."""
        directory = "/etc/moorage/handlers.d"
        generated = f"/var/lib/moorage-engine/handlers.d/{handler}.toml"
        changed = f"journalctl --unit moorage-engine --output cat --cursor-file /root/{handler}"
        self.guest.must(f"{changed} > /dev/null")
        if not self.guest.run(f"ls {directory}/{handler}.toml").code:
            return
        self.guest.must(
            f"mkdir -p {directory} && rm -f {directory}/*.toml && "
            f"{{ echo 'default = true'; cat {generated}; }} > {directory}/{handler}.toml"
        )
        self.guest.until(f"{changed} | grep 'handler changed handler={handler}'", WITHIN_S)

    def add(self, name: str, *containers: dict[str, Any]) -> None:
        """Give the kubelet a static pod."""
        spec = {"terminationGracePeriodSeconds": 1, "containers": list(containers)}
        metadata = {"name": name, "namespace": "default"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        self.guest.write(f"{MANIFESTS}/{name}.yaml", yaml.safe_dump(pod).encode())


def container(name: str, script: str, cpu: str, memory: str) -> dict[str, Any]:
    """A container of busybox that runs a script, with limits and smaller requests."""
    return {
        "name": name, "image": BUSYBOX, "command": ["sh", "-c", script],
        "resources": {
            "requests": {"cpu": "10m", "memory": "16Mi"},
            "limits": {"cpu": cpu, "memory": memory},
        },
    }  # fmt: skip


def start(guest: Guest) -> Node:
    """Start the engine with the page's unit, and a kubelet."""
    (page,) = [page for page in HOW_TO if page.stem == "parts-of-kubernetes"]
    (network,) = [block.text for block in blocks(page.read_text()) if '"cniVersion"' in block.text]
    files = {
        "/etc/systemd/system/moorage-engine.service": unit(),
        "/etc/systemd/system/moorage-engine.service.d/slow.conf": _SLOW,
        "/etc/systemd/system/kubelet.service": _UNIT,
        "/etc/kubernetes/kubelet.json": json.dumps(_CONFIGURATION),
        "/etc/cni/net.d/10-pods.conflist": network,
        "/root/load.py": _LOAD,
    }  # fmt: skip
    guest.write_all(files)
    guest.must(
        f"mkdir -p {MANIFESTS} && systemctl daemon-reload && "
        "systemctl enable --quiet kubelet moorage-engine"
    )
    guest.must("systemctl start moorage-engine", within_s=WITHIN_S)
    guest.must(f"{VENV}/bin/python /root/load.py", within_s=WITHIN_S)
    guest.must("systemctl start kubelet")
    return Node(guest)
