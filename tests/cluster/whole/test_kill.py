"""`kill -9` of everything in the middle of writes: nothing acknowledged is lost, pods go on."""

from __future__ import annotations

import http.client
import json
import os
import random
import shutil
import signal
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest

from moorage.wire.client.config import load_kubeconfig
from tests.running import (
    RunningCluster,
    pod,
    running,
    runtime_class,
    skip_without_kubectl,
    skip_without_runtimes,
    until,
)

pytestmark = [pytest.mark.runtime, pytest.mark.slow, pytest.mark.timeout(300)]

ROUNDS = int(os.environ.get("MOORAGE_KILL_ROUNDS", "3"))
_WRITERS = 4
_MAPS = "/api/v1/namespaces/default/configmaps"


class WriteLoad:
    """Threads that create ConfigMaps until the server is gone; what it acknowledged is kept."""

    def __init__(self, cluster: RunningCluster, round_: int) -> None:
        self.acknowledged: list[str] = []
        self._round = round_
        config = load_kubeconfig(cluster.kubeconfig)
        self._context: ssl.SSLContext | None = config.ssl_context()
        host, _, port = config.server.removeprefix("https://").partition(":")
        self._place = (host, int(port))
        self._threads = [threading.Thread(target=self._write, args=(n,)) for n in range(_WRITERS)]

    def __enter__(self) -> WriteLoad:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.join(20)

    def _write(self, writer: int) -> None:
        connection = http.client.HTTPSConnection(*self._place, context=self._context, timeout=10)
        try:
            for number in range(100_000):
                name = f"w-{self._round}-{writer}-{number}"
                body = json.dumps({"metadata": {"name": name}, "data": {"k": "v" * 100}})
                connection.request("POST", _MAPS, body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                answer.read()
                assert answer.status == 201
                self.acknowledged.append(name)
        except (OSError, http.client.HTTPException):
            # The server was killed, which is the point.
            return
        finally:
            connection.close()


def _pids(cluster: RunningCluster) -> list[int]:
    """Parts first: a supervisor that outlives none of them restarts none."""
    rows = json.loads(cluster.moor("status", "-o", "json").stdout)
    by_part = {row["part"]: row["pid"] for row in rows}
    supervisor = by_part.pop("supervisor")
    return [supervisor, *by_part.values()]


def _kill(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def _container(cluster: RunningCluster, name: str) -> tuple[Any, ...]:
    status = cluster.get("pod", name)["status"]["containerStatuses"][0]
    running_since = status["state"].get("running", {}).get("startedAt")
    return status["containerID"], status["restartCount"], running_since


def test_kills_lose_nothing(tmp_path: Path) -> None:
    skip_without_kubectl()
    skip_without_runtimes()
    acknowledged: list[str] = []
    with running(tmp_path / "data", node_name="n1") as cluster:
        # A pod of each kind of runtime that there is.
        classes = {"stays": "crun", "stays-too": ""}
        if shutil.which("runsc"):
            classes["stays-sandboxed"] = "gvisor"
        cluster.apply(runtime_class("crun", "crun"), runtime_class("gvisor", "gvisor"))
        # Renamed into place: a reader never finds half of it.
        write = "echo $i > /tmp/next && mv /tmp/next /tmp/count"
        counting = f"i=0; while :; do {write}; i=$((i+1)); sleep 0.05; done"
        container = {"command": ["sh", "-c", counting]}
        cluster.apply(
            *(
                pod(name, runtime_class=runtime_class, container=container)
                for name, runtime_class in classes.items()
            )
        )
        cluster.wait_ready(*classes)
        before = {name: _container(cluster, name) for name in classes}
        for round_ in range(ROUNDS):
            pids = _pids(cluster)
            with WriteLoad(cluster, round_) as load:
                until(lambda load=load: len(load.acknowledged) > 20, "writes")  # type: ignore[misc]
                threading.Event().wait(random.uniform(0, 0.3))
                _kill(pids)
            acknowledged += load.acknowledged
            cluster.moor("up", "--detach")
            present = {
                config_map["metadata"]["name"] for config_map in cluster.get("configmaps")["items"]
            }
            lost = set(acknowledged) - present
            assert not lost, f"round {round_}: {len(lost)} acknowledged writes are lost: {lost}"
            for name, container_before in before.items():
                assert _container(cluster, name) == container_before, f"round {round_}: {name}"
        cluster.wait_ready(*classes)
        for name in classes:
            counted = int(cluster.kubectl("exec", name, "--", "cat", "/tmp/count").stdout)
            assert counted > 10 * ROUNDS, name
    print(f"{ROUNDS} kills, {len(acknowledged)} acknowledged writes, none lost")
