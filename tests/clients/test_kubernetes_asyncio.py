"""kubernetes-asyncio: a pod watched until it runs, entered over a websocket, and deleted."""

from __future__ import annotations

from typing import Any

from kubernetes_asyncio import client, config, watch
from kubernetes_asyncio.stream import WsApiClient

from moorage.cluster.images.catalogue import BUSYBOX
from tests.running import RunningCluster

_NAME = "asyncio"


async def test_a_pod_is_created_watched_entered_and_deleted(whole_cluster: RunningCluster) -> None:
    configuration = client.Configuration()
    await config.load_kube_config(str(whole_cluster.kubeconfig), client_configuration=configuration)
    container = {"name": "main", "image": BUSYBOX, "command": ["sleep", "3600"]}
    body: dict[str, Any] = {"metadata": {"name": _NAME}, "spec": {"containers": [container]}}
    async with client.ApiClient(configuration) as api, WsApiClient(configuration) as sockets:
        core = client.CoreV1Api(api)
        await core.create_namespaced_pod("default", body)
        async with watch.Watch() as watching:
            async for event in watching.stream(
                core.list_namespaced_pod, "default", field_selector=f"metadata.name={_NAME}",
                timeout_seconds=60,
            ):  # fmt: skip
                if event["object"].status.phase == "Running":
                    break
        answer = await client.CoreV1Api(sockets).connect_get_namespaced_pod_exec(
            _NAME, "default", command=["echo", "inside"],
            stdout=True, stderr=True, stdin=False, tty=False,
        )  # fmt: skip
        assert answer == "inside\n"
        await core.delete_namespaced_pod(_NAME, "default", grace_period_seconds=0)
