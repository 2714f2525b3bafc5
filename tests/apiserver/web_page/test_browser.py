"""Web page in a browser without scripts, through `kubectl proxy`: keyboard and screen reader."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.apiserver.web_page.browser import chromium_tab
from tests.cli.commands.test_ui import moor_ui
from tests.running import RunningCluster

_TAB, _ENTER = ("Tab", 9), ("Enter", 13)
_CLASS = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "seen"},
    "handler": "gvisor",
}
_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "browsed"},
    "spec": {
        "runtimeClassName": "seen",
        "containers": [{"name": "c", "image": "moorage.local/busybox:1"}],
    },
}


@asynccontextmanager
async def kubectl_proxy(cluster: RunningCluster) -> AsyncIterator[str]:
    """Yield the URL of `kubectl proxy` in front of a cluster."""
    process = await asyncio.create_subprocess_exec(
        "kubectl", "proxy", "--port=0", stdout=asyncio.subprocess.PIPE,
        env=cluster.environment,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), 30)
        found = re.search(rb"127\.0\.0\.1:\d+", line)
        assert found is not None, line
        yield f"http://{found[0].decode()}"
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def _browsed(cluster: RunningCluster) -> AsyncIterator[None]:
    """Keep the class and the pod that are looked at: other tests list what the cluster has."""
    account = ("wait", "--for=create", "serviceaccount/default", "--timeout=30s")
    await asyncio.to_thread(cluster.kubectl, *account)
    await asyncio.to_thread(cluster.apply, _CLASS, _POD)
    try:
        yield
    finally:
        objects = ("pod/browsed", "runtimeclass/seen")
        await asyncio.to_thread(cluster.kubectl, "delete", "--wait=false", *objects)


async def test_the_page_works_by_keyboard_and_for_screen_readers(
    control_plane: RunningCluster, tmp_path: Path
) -> None:
    async with (
        _browsed(control_plane),
        kubectl_proxy(control_plane) as url,
        chromium_tab(tmp_path) as tab,
    ):
        await tab.open(f"{url}/ui/")
        found = await tab.accessible()
        assert ("heading", "Runtimes of this cluster") in found
        assert ("rowheader", "seen") in found
        assert {name for role, name in found if role == "columnheader"} >= {
            "Class", "Handler", "Isolation", "Overhead of a pod", "Nodes", "Pods"
        }  # fmt: skip
        assert ("main", "") in found
        await tab.press(*_TAB)
        focused = "document.activeElement"
        assert await tab.evaluate(f"{focused}.textContent") == "Skip to the content"
        assert await tab.evaluate(f"{focused}.getBoundingClientRect().left >= 0")
        await tab.press(*_ENTER)
        assert await tab.evaluate("location.hash") == "#content"
        wide = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        assert await tab.evaluate(wide)
        picture = await tab.screenshot()
        assert picture.startswith(b"\x89PNG")
        if directory := os.environ.get("MOORAGE_SCREENSHOTS"):
            await asyncio.to_thread(Path(directory, "ui.png").write_bytes, picture)
        await tab.open(f"{url}/ui/classes/seen")
        assert ("link", "browsed") in await tab.accessible()
        await tab.open(f"{url}/ui/namespaces/default/pods/browsed")
        assert ("heading", "Pod default/browsed") in await tab.accessible()
        async with moor_ui("--kubeconfig", control_plane.kubeconfig) as line:
            await tab.open(line.split()[4])
            assert ("rowheader", "seen") in await tab.accessible()
            assert await tab.evaluate("getComputedStyle(document.body).marginTop") == "0px"
            link = "document.querySelector('a[href=\"classes/seen\"]').href"
            await tab.open(await tab.evaluate(link))
            assert ("link", "browsed") in await tab.accessible()
