"""Web page for kube-apiserver: what it shows is what its viewer may read there."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.apiserver.web_page.browser import chromium_tab
from tests.apiserver.web_page.test_doors import basic
from tests.cli.commands.test_ui import moor_ui
from tests.interchange.control_plane import real_api_server
from tests.interchange.programs import required
from tests.running import RunningCluster

pytestmark = [pytest.mark.runtime, pytest.mark.slow, pytest.mark.timeout(600)]

_RBAC = "rbac.authorization.k8s.io"
_OBJECTS: tuple[dict[str, Any], ...] = (
    {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "seen"},
     "handler": "kata"},
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}},
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "viewer"}},
    {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "classes"},
     "rules": [{"apiGroups": ["node.k8s.io"], "resources": ["runtimeclasses"],
                "verbs": ["list"]}]},
    {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "classes"},
     "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "classes"},
     "subjects": [{"kind": "ServiceAccount", "name": "viewer", "namespace": "default"}]},
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "browsed"},
     "spec": {"runtimeClassName": "seen", "automountServiceAccountToken": False,
              "containers": [{"name": "c", "image": "i"}]}},
)  # fmt: skip


def test_a_viewer_sees_by_token_and_by_kubeconfig(place: Path) -> None:
    paths = required("kube-apiserver", "etcd")
    with real_api_server(place, paths) as cluster:
        for obj in _OBJECTS:
            cluster.apply(obj)
        asyncio.run(_by_token(cluster))
        asyncio.run(_by_kubeconfig(cluster, place))


async def _by_token(cluster: RunningCluster) -> None:
    token = cluster.kubectl("create", "token", "viewer").stdout.strip()
    server = cluster.kubectl("config", "view", "-o", "jsonpath={.clusters[0].cluster.server}")
    host, _, port = server.stdout.removeprefix("https://").partition(":")
    environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    authority = cluster.data_dir / "pki" / "ca.crt"
    options = ("--in-cluster", "--certificate-authority", authority)
    async with moor_ui(*options, env=environment) as line, aiohttp.ClientSession() as http:
        found = re.search(r"port=(\d+)", line)
        assert found is not None, line
        url = f"http://127.0.0.1:{found[1]}/ui/"
        async with http.get(url, headers={"Authorization": basic(token)}) as answer:
            text = await answer.text()
            assert answer.status == 200
            assert '<a href="classes/seen">' in text
            assert "You may not read nodes, pods" in text
        path = f"{url}namespaces/default/pods/browsed"
        async with http.get(path, headers={"Authorization": basic(token)}) as answer:
            assert answer.status == 403
        for bad in ({}, {"Authorization": "Bearer no-such-token"}):
            async with http.get(url, headers=bad) as answer:
                assert answer.status == 401


async def _by_kubeconfig(cluster: RunningCluster, place: Path) -> None:
    # Beside its directory: in it, it would choose the cluster of `moor up` there.
    kubeconfig = Path(shutil.copy(cluster.kubeconfig, place / "kubeconfig"))
    async with moor_ui("--kubeconfig", kubeconfig) as line, chromium_tab(place) as tab:
        url = line.split()[4]
        await tab.open(url)
        assert ("rowheader", "seen") in await tab.accessible()
        if directory := os.environ.get("MOORAGE_SCREENSHOTS"):
            picture = await tab.screenshot()
            await asyncio.to_thread(Path(directory, "ui-kubernetes.png").write_bytes, picture)
        await tab.open(f"{url}namespaces/default/pods/browsed")
        assert ("heading", "Pod default/browsed") in await tab.accessible()
