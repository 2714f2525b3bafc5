"""Port-forward by websocket (`v4.channel.k8s.io`), as the official Python and JavaScript clients
speak it: through API server, node agent and engine, with real bytes.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import ssl
import time
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
import yaml
from kubernetes import client, config
from kubernetes.stream import portforward

from tests.running import RunningCluster, pod

pytestmark = pytest.mark.runtime

NAME = "forwarded"
ECHO, SOURCE, SINK, OTHER_ECHO, CLOSED = 7001, 7002, 7003, 7004, 7009
SOURCE_BYTES = 20_000_000
SINK_BYTES = 8_000_000
WITHIN_S = 60.0
# Each connection to a port is the input and output of a program of its own.
SERVES = f"""
serve() {{
  printf '#!/bin/sh\\n%s\\n' "$2" > /tmp/$1; chmod 755 /tmp/$1
  nc -ll -p $1 -e /tmp/$1 &
}}
serve {ECHO} 'exec cat'
serve {OTHER_ECHO} 'exec cat'
serve {SOURCE} 'head -c {SOURCE_BYTES} /dev/zero | tr "\\\\0" x'
serve {SINK} 'head -c {SINK_BYTES} | sha256sum'
until [ "$(netstat -ltn | grep -c ':700[1-4] ')" = 4 ]; do sleep 0.1; done
touch /tmp/ready
wait
"""
PATH = f"/api/v1/namespaces/default/pods/{NAME}/portforward"


@pytest.fixture(scope="module")
def cluster(whole_cluster: RunningCluster) -> Iterator[RunningCluster]:
    probe = {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1}
    container = {"command": ["sh", "-c", SERVES], "readinessProbe": probe}
    whole_cluster.apply(pod(NAME, container=container))
    whole_cluster.wait_ready(NAME)
    yield whole_cluster
    whole_cluster.kubectl("delete", "pod", NAME, "--wait=false")


def _forward(cluster: RunningCluster, *ports: int) -> Any:
    api = client.CoreV1Api(config.new_client_from_config(str(cluster.kubeconfig)))
    return portforward(
        api.connect_get_namespaced_pod_portforward,
        NAME,
        "default",
        ports=",".join(str(port) for port in ports),
    )


def _connected(forward: Any, port: int) -> Any:
    connection = forward.socket(port)
    connection.settimeout(WITHIN_S)
    return connection


def _read_all(connection: Any, at_most: int = 1 << 30) -> bytes:
    pieces, size = [], 0
    while size < at_most and (piece := connection.recv(min(1 << 20, at_most - size))):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def test_bytes_go_both_ways_on_several_ports_at_once(cluster: RunningCluster) -> None:
    forward = _forward(cluster, ECHO, OTHER_ECHO)
    for turn in range(3):
        payloads = {port: os.urandom(1000) + bytes((turn,)) for port in (ECHO, OTHER_ECHO)}
        for port, data in payloads.items():
            _connected(forward, port).sendall(data)
        for port, data in payloads.items():
            assert _read_all(_connected(forward, port), len(data)) == data
    assert forward.error(ECHO) is None
    forward.close()


def test_much_comes_from_the_pod_to_its_last_byte_when_it_ends(cluster: RunningCluster) -> None:
    forward = _forward(cluster, SOURCE)
    assert _read_all(_connected(forward, SOURCE)) == b"x" * SOURCE_BYTES
    assert forward.error(SOURCE) is None


def test_much_goes_into_the_pod_and_its_answer_comes_back(cluster: RunningCluster) -> None:
    forward = _forward(cluster, SINK)
    data = os.urandom(SINK_BYTES)
    connection = _connected(forward, SINK)
    connection.sendall(data)
    # The pod's program has ended its side by then.
    assert _read_all(connection).decode().split()[0] == hashlib.sha256(data).hexdigest()


def test_port_without_listener_fails_alone(cluster: RunningCluster) -> None:
    forward = _forward(cluster, ECHO, CLOSED)
    assert _read_all(_connected(forward, CLOSED)) == b""
    deadline = time.monotonic() + WITHIN_S
    while forward.error(CLOSED) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert f"error forwarding port {CLOSED} to pod" in forward.error(CLOSED)
    connection = _connected(forward, ECHO)
    connection.sendall(b"still here")
    assert _read_all(connection, 10) == b"still here"
    forward.close()


class _Caller:
    """Websockets to the API server, message by message."""

    def __init__(self, cluster: RunningCluster) -> None:
        kubeconfig = yaml.safe_load(cluster.kubeconfig.read_text())
        where = kubeconfig["clusters"][0]["cluster"]
        user = kubeconfig["users"][0]["user"]
        self.url = where["server"]
        authority = base64.b64decode(where["certificate-authority-data"]).decode()
        self.tls = ssl.create_default_context(cadata=authority)
        pair = cluster.data_dir / "pair.pem"
        pair.touch(0o600)
        pair.write_bytes(
            base64.b64decode(user["client-certificate-data"])
            + base64.b64decode(user["client-key-data"])
        )
        self.tls.load_cert_chain(pair)

    def open(self, http: aiohttp.ClientSession, query: str, *protocols: str) -> Any:
        url = f"{self.url}{PATH}?{query}"
        return http.ws_connect(url, ssl=self.tls, protocols=protocols)


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (("v4.channel.k8s.io",), "v4.channel.k8s.io"),
        (("v5.channel.k8s.io", "v4.channel.k8s.io"), "v4.channel.k8s.io"),
        (("v4.base64.channel.k8s.io",), "v4.base64.channel.k8s.io"),
    ],
)
async def test_each_channel_begins_with_its_port(
    cluster: RunningCluster, offered: tuple[str, ...], chosen: str
) -> None:
    is_text = "base64" in chosen

    def decoded(message: aiohttp.WSMessage) -> tuple[int, bytes]:
        if is_text:
            return int(message.data[0]), base64.b64decode(message.data[1:])
        return message.data[0], message.data[1:]

    ports = (ECHO, OTHER_ECHO)
    async with (
        aiohttp.ClientSession() as http,
        _Caller(cluster).open(http, f"ports={ECHO}&ports={OTHER_ECHO}", *offered) as socket,
    ):
        assert socket.protocol == chosen
        async with asyncio.timeout(WITHIN_S):
            begun = [decoded(await socket.receive()) for _ in range(4)]
            numbers = [port.to_bytes(2, "little") for port in ports for _ in range(2)]
            assert begun == list(enumerate(numbers))
            data = b"2" + base64.b64encode(b"hello") if is_text else b"\x02hello"
            await (socket.send_str(data.decode()) if is_text else socket.send_bytes(data))
            assert decoded(await socket.receive()) == (2, b"hello")


async def test_no_port_and_no_common_protocol_are_refused(cluster: RunningCluster) -> None:
    caller = _Caller(cluster)
    async with aiohttp.ClientSession() as http:
        for query, protocol, status in (
            ("", "v4.channel.k8s.io", 400),
            (f"ports={ECHO}", "v9.channel.k8s.io", 403),
            ("ports=0", "v4.channel.k8s.io", 400),
            ("ports=http", "v4.channel.k8s.io", 400),
        ):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                async with caller.open(http, query, protocol):
                    pass
            assert refused.value.status == status, query
