"""Requests a second at the API server: `.venv/bin/python -m bench.api [--peer KUBECONFIG]`.

Starts an API server of its own in a scratch directory (or uses `--kubeconfig`), loads it with wrk
over TLS with a bearer token, and prints POST pod (with a runtimeClassName, durable), GET
RuntimeClass and LIST 500 pods at 1 and 32 connections. With `--peer` the same is done to another
server, such as a kube-apiserver, in turn for each round, and each figure is printed as a ratio.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import ssl
import statistics
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from moorage.wire.client.config import ClientConfig, load_kubeconfig

CLASS = "bench"
NAMESPACE = "default"
LISTED = "bench-list"

POST_POD = """
local thread = 0
function setup(t) t:set("id", thread) thread = thread + 1 end
local n = 0
function request()
  n = n + 1
  local name = string.format("%s-%d-%d", "{run}", id, n)
  local body = '{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"' .. name ..
    '"}},"spec":{{' ..
    '"runtimeClassName":"{cls}","automountServiceAccountToken":false,' ..
    '"containers":[{{"name":"app","image":"app:1","resources":' ..
    '{{"limits":{{"cpu":"100m","memory":"64Mi"}}}}}}]}}}}'
  return wrk.format("POST", "/api/v1/namespaces/{ns}/pods", nil, body)
end
"""
GET = """
function request() return wrk.format("GET", "{path}") end
"""


@dataclass(frozen=True)
class Server:
    """A server under load: its URL and an administrator's token."""

    url: str
    token: str

    def call(self, method: str, path: str, body: object = None) -> None:
        context = ssl._create_unverified_context()
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )
        try:
            urllib.request.urlopen(request, context=context).read()
        except urllib.error.HTTPError as error:
            if error.code not in (404, 409):
                raise SystemExit(f"{method} {path}: {error.code} {error.read()[:300]!r}") from error

    def load(self, script: str, connections: int, seconds: int) -> float:
        """Requests a second that wrk counts; any answer but 2xx ends the program."""
        with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
            file.write(script)
            file.flush()
            out = subprocess.run(
                ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", file.name,
                 "-H", f"Authorization: Bearer {self.token}",
                 "-H", "Content-Type: application/json", self.url],
                capture_output=True, text=True, check=True,
            ).stdout  # fmt: skip
        if "Non-2xx" in out:
            raise SystemExit(f"{self.url} refused requests:\n{out}")
        match = re.search(r"Requests/sec:\s+([\d.]+)", out)
        if match is None:
            raise SystemExit(f"wrk printed no rate:\n{out}")
        return float(match[1])


def prepare(server: Server, listed: int = 500) -> None:
    """The class that pods name, an account for them, and pods to list."""
    server.call("POST", "/apis/node.k8s.io/v1/runtimeclasses", {
        "metadata": {"name": CLASS}, "handler": "bench",
        "overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}},
        "scheduling": {"nodeSelector": {"bench": "yes"}},
    })  # fmt: skip
    server.call("POST", "/api/v1/namespaces", {"metadata": {"name": LISTED}})
    for namespace in (NAMESPACE, LISTED):
        server.call("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts",
                    {"metadata": {"name": "default"}})  # fmt: skip
    for number in range(listed):
        server.call("POST", f"/api/v1/namespaces/{LISTED}/pods", {
            "metadata": {"name": f"listed-{number:03d}"},
            "spec": {"runtimeClassName": CLASS, "automountServiceAccountToken": False,
                     "containers": [{"name": "app", "image": "app:1"}]},
        })  # fmt: skip


_GET_PATH = f"/apis/node.k8s.io/v1/runtimeclasses/{CLASS}"
_LIST_PATH = f"/api/v1/namespaces/{LISTED}/pods"


def scripts(run: str) -> Iterator[tuple[str, int, str]]:
    """What is measured: its name, the connections, the requests."""
    for connections in (1, 32):
        yield f"GET class, {connections} connections", connections, GET.format(path=_GET_PATH)
    for connections in (1, 32):
        post = POST_POD.format(run=f"{run}c{connections}", cls=CLASS, ns=NAMESPACE)
        yield f"POST pod, {connections} connections", connections, post
    yield "LIST 500 pods, 2 connections", 2, GET.format(path=_LIST_PATH)


def measure(servers: list[Server], run: str, seconds: int, rounds: int) -> dict[str, list[float]]:
    """Load the servers in turn, several times. Returns each one's medians.

    So a machine that is slower for a while is slower for each of them.
    """
    figures: dict[str, list[list[float]]] = {}
    for number in range(rounds):
        for name, connections, script in scripts(f"{run}r{number}"):
            rates = [server.load(script, connections, seconds) for server in servers]
            figures.setdefault(name, []).append(rates)
    return {
        name: [statistics.median(rates) for rates in zip(*measured, strict=True)]
        for name, measured in figures.items()
    }


def server_of(config: ClientConfig) -> Server:
    if not config.token:
        raise SystemExit(f"{config.server}: the kubeconfig must have a bearer token")
    return Server(config.server, config.token)


@contextlib.contextmanager
def own_server() -> Iterator[Server]:
    """An API server of ours in a process and directory of its own."""
    from bench.own_api import running

    with running() as (url, token):
        yield Server(url, token)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kubeconfig", type=Path, help="a running server to load")
    parser.add_argument("--peer", type=Path, help="the server to compare with")
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        if options.kubeconfig:
            server = server_of(load_kubeconfig(options.kubeconfig))
        else:
            server = stack.enter_context(own_server())
        servers = [server]
        if options.peer:
            servers.append(server_of(load_kubeconfig(options.peer)))
        run = f"run{abs(hash(tempfile.mktemp())) % 10**6}"
        for target in servers:
            prepare(target)
        figures = measure(servers, run, options.seconds, options.rounds)
    for name, rates in figures.items():
        line = f"{name:32s} {rates[0]:10,.0f}/s"
        if len(rates) > 1:
            line += f"   peer {rates[1]:10,.0f}/s   {rates[0] / rates[1]:5.2f} x"
        print(line)


if __name__ == "__main__":
    main()
