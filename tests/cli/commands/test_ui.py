"""`moor ui`: the page with a kubeconfig's credentials, and in a pod without any."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.apiserver.running_server import Running, serving
from tests.cli.moor import moor
from tests.running import MOOR

_DEADLINE_S = 60.0


def kubeconfig(path: Path, server: str, authority: bytes = b"", token: str = "alice-token") -> Path:
    data = base64.b64encode(authority).decode()
    cluster = {"server": server} | ({"certificate-authority-data": data} if data else {})
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": token}}],
    }
    path.write_text(json.dumps(document))
    return path


@asynccontextmanager
async def moor_ui(*options: object, env: dict[str, str] | None = None) -> AsyncIterator[str]:
    """Run `moor ui`; yield the line that it prints first, on standard output or error."""
    process = await asyncio.create_subprocess_exec(
        *MOOR, "ui", *map(str, options), stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT, env=os.environ | (env or {}),
    )  # fmt: skip
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_DEADLINE_S):
            yield (await process.stdout.readline()).decode()
            process.send_signal(signal.SIGINT)
            rest = await process.stdout.read()
            assert b"Traceback" not in rest, rest.decode()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with serving(tmp_path) as running:
        yield running


async def test_the_printed_address_shows_what_the_kubeconfigs_user_may_read(
    server: Running, tmp_path: Path
) -> None:
    authority = server.authority.pair.certificate.read_bytes()
    path = kubeconfig(tmp_path / "kubeconfig", server.url, authority)
    async with moor_ui("--kubeconfig", path) as line, aiohttp.ClientSession() as http:
        found = re.search(r"http://127\.0\.0\.1:\d+/[\w-]{32}/ui/", line)
        assert found is not None, line
        async with http.get(found[0]) as answer:
            assert answer.status == 200
            assert "You may not read nodes, pods" in await answer.text()


async def test_in_a_pod_the_page_is_read_with_the_viewers_token(server: Running) -> None:
    host, _, port = server.url.removeprefix("https://").partition(":")
    environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    authority = server.authority.pair.certificate
    options = ("--in-cluster", "--certificate-authority", authority)
    async with moor_ui(*options, env=environment) as line, aiohttp.ClientSession() as http:
        found = re.search(r"port=(\d+)", line)
        assert found is not None, line
        url = f"http://127.0.0.1:{found[1]}/ui/"
        async with http.get(url) as answer:
            assert answer.status == 401
        async with http.get(url, headers={"Authorization": "Bearer admin-token"}) as answer:
            assert "You may not read" not in await answer.text()


def test_an_api_server_that_is_away_is_one_line(tmp_path: Path) -> None:
    answer = moor("ui", "--kubeconfig", kubeconfig(tmp_path / "k", "http://127.0.0.1:1"))
    assert answer.status == 1
    assert answer.err == "moor: cannot connect to 127.0.0.1:1: Connection refused\n"


def test_in_a_pod_the_authority_is_given(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").touch()
    for options in (("--in-cluster",), ("--certificate-authority", tmp_path / "ca.crt")):
        answer = moor("ui", *options)
        assert answer.status == 2
        assert "--in-cluster and --certificate-authority go together" in answer.err
