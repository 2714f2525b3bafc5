"""Server of the page in front of an API server: each viewer sees what he may read there."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from moorage.apiserver.web_page import Site
from moorage.apiserver.web_page.doors import Door, KeyDoor, ReadLimits, TokenDoor
from moorage.apiserver.web_page.server import PageOptions, serve_page
from moorage.cluster.access.identities import Subject
from moorage.wire.client.config import ClientConfig
from moorage.wire.client.rest import Client
from tests.apiserver.running_server import Running, serving
from tests.apiserver.web_page.test_doors import basic

CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
_KEY = "key"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with serving(tmp_path) as running:
        body = {"metadata": {"name": "sandboxed"}, "handler": "gvisor"}
        assert (await running.ask("POST", CLASSES, body)).status == 201
        yield running


def config(server: Running, token: str | None = None) -> ClientConfig:
    return ClientConfig(
        server=server.url, ca=server.authority.pair.certificate.read_bytes(), token=token
    )


@asynccontextmanager
async def page(door: Door, waiting: int = 32, **parts: Any) -> AsyncIterator[str]:
    """Yield the URL of the page."""
    listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    options = PageOptions(waiting=waiting)
    task = asyncio.create_task(serve_page(door, options, listening.set_result, **parts))
    try:
        done, _ = await asyncio.wait((task, listening), return_when=asyncio.FIRST_COMPLETED)
        assert listening in done, task
        yield f"http://127.0.0.1:{listening.result()}"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_with_a_certificate_the_page_is_served_by_https_alone(server: Running) -> None:
    pair = server.authority.issue("page", Subject("page", hosts=("127.0.0.1",)))
    options = PageOptions(certificate=pair.certificate, key=pair.key)
    listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve_page(TokenDoor(config(server)), options, listening.set_result))
    try:
        port = await listening
        trusting = ssl.create_default_context(cafile=str(server.authority.pair.certificate))
        url = f"https://127.0.0.1:{port}/ui/"
        headers = {"Authorization": "Bearer admin-token"}
        async with aiohttp.ClientSession() as http:
            async with http.get(url, headers=headers, ssl=trusting) as answer:
                assert answer.status == 200
            with pytest.raises(aiohttp.ClientError):
                await http.get(url.replace("https", "http"), headers=headers)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def asked(
    url: str | URL, method: str = "GET", **headers: str
) -> AsyncIterator[tuple[aiohttp.ClientResponse, str]]:
    async with (
        aiohttp.ClientSession() as http,
        http.request(method, url, headers=headers, allow_redirects=False) as answer,
    ):
        yield answer, await answer.text()


async def test_each_viewer_sees_with_his_own_token(server: Running) -> None:
    async with page(TokenDoor(config(server))) as url:
        for admin in ("Bearer admin-token", basic("admin-token")):
            async with asked(f"{url}/ui/", Authorization=admin) as (answer, text):
                assert answer.status == 200
                assert '<a href="classes/sandboxed">' in text
                assert "You may not read" not in text
        async with asked(f"{url}/ui/", Authorization="Bearer alice-token") as (answer, text):
            assert (answer.status, "You may not read nodes, pods" in text) == (200, True)
        path = f"{url}/ui/namespaces/default/pods/web"
        async with asked(path, Authorization="Bearer alice-token") as (answer, _):
            assert answer.status == 403
        async with asked(path, Authorization="Bearer admin-token") as (answer, _):
            assert answer.status == 404


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}])
async def test_a_browser_is_asked_for_a_token(server: Running, headers: dict[str, str]) -> None:
    async with (
        page(TokenDoor(config(server))) as url,
        asked(f"{url}/ui/", **headers) as (answer, text),
    ):
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"].startswith("Basic realm=")
        assert "sandboxed" not in text


async def test_the_key_shows_what_the_kubeconfigs_user_may_read(server: Running) -> None:
    async with (
        Client(config(server, "alice-token"), user_agent="test") as client,
        page(KeyDoor(client, _KEY)) as url,
    ):
        async with asked(f"{url}/{_KEY}/ui/") as (answer, text):
            assert (answer.status, "You may not read nodes, pods" in text) == (200, True)
        # Credentials of a request count for nothing here.
        admin = {"Authorization": "Bearer admin-token"}
        async with asked(f"{url}/{_KEY}/ui/", **admin) as (_, text):
            assert "You may not read nodes, pods" in text
        async with asked(f"{url}/ui/", **admin) as (answer, _):
            assert answer.status == 404
        async with asked(f"{url}/{_KEY}/ui/", Host="evil.example") as (answer, text):
            assert (answer.status, "sandboxed" in text) == (403, False)


async def test_every_answer_forbids_scripts_frames_and_caches(server: Running) -> None:
    async with page(TokenDoor(config(server))) as url:
        for path in ("/ui/", "/ui/style.css", "/other", "/healthz"):
            for token in ("admin-token", "wrong"):
                async with asked(url + path, Authorization=f"Bearer {token}") as (answer, _):
                    policy = answer.headers["Content-Security-Policy"]
                    assert "default-src 'none'" in policy
                    assert "frame-ancestors 'none'" in policy
                    assert "script-src" not in policy
                    assert answer.headers["X-Content-Type-Options"] == "nosniff"
                    assert answer.headers["Cache-Control"] == "no-store"
                    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_nothing_can_be_changed(server: Running, method: str) -> None:
    async with (
        page(TokenDoor(config(server))) as url,
        asked(f"{url}/ui/", method, Authorization="Bearer admin-token") as (answer, _),
    ):
        assert answer.status == 405


async def test_the_root_without_a_slash_leads_to_the_page(server: Running) -> None:
    async with page(TokenDoor(config(server))) as url, asked(f"{url}/ui") as (answer, _):
        assert (answer.status, answer.headers["Location"]) == (301, "ui/")


async def test_an_api_server_that_is_away_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    async with (
        page(TokenDoor(ClientConfig(server=f"http://127.0.0.1:{port}"))) as url,
        asked(f"{url}/ui/", Authorization="Bearer t") as (answer, text),
    ):
        assert answer.status == 502
        assert f"cannot connect to 127.0.0.1:{port}" in text


async def test_a_list_that_is_too_long_is_refused(server: Running) -> None:
    async with (
        page(TokenDoor(config(server), ReadLimits(objects=0))) as url,
        asked(f"{url}/ui/", Authorization="Bearer admin-token") as (answer, text),
    ):
        assert answer.status == 413
        assert "the page reads at most 0 runtimeclasses" in text


async def test_objects_that_are_large_together_are_read_in_small_pages(server: Running) -> None:
    for number in range(8):
        name, text = f"large-{number}", "x" * 9_000
        body = {"metadata": {"name": name, "annotations": {"a": text}}, "handler": "runc"}
        assert (await server.ask("POST", CLASSES, body)).status == 201
    async with (
        page(TokenDoor(config(server), ReadLimits(page_bytes=20_000))) as url,
        asked(f"{url}/ui/", Authorization="Bearer admin-token") as (answer, text),
    ):
        assert answer.status == 200
        assert text.count('<a href="classes/large-') == 8


async def test_visitors_beyond_those_that_wait_are_sent_away(server: Running) -> None:
    goes_on = asyncio.Event()
    begun = 0

    class Slow(Site):
        async def page(self, *_: object) -> Any:
            nonlocal begun
            begun += 1
            await goes_on.wait()
            raise AssertionError("ends here")

    async with (
        page(TokenDoor(config(server)), 3, site=Slow()) as url,
        aiohttp.ClientSession() as http,
    ):

        async def visit() -> int:
            headers = {"Authorization": "Bearer admin-token"}
            async with http.get(f"{url}/ui/", headers=headers) as answer:
                return answer.status

        visits = [asyncio.create_task(visit()) for _ in range(4)]
        done, waiting = await asyncio.wait(visits, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result() for task in done] == [503]
        assert begun == 2  # the third waits for its turn
        goes_on.set()
        assert {await task for task in waiting} == {500}


async def test_who_has_no_token_is_asked_for_it_however_many_wait() -> None:
    config = ClientConfig(server="http://127.0.0.1:1")
    async with page(TokenDoor(config), 0) as url:
        async with asked(f"{url}/ui/") as (answer, _):
            assert answer.status == 401
        async with asked(f"{url}/ui/", Authorization="Bearer t") as (answer, _):
            assert answer.status == 503
        async with asked(f"{url}/ui/style.css") as (answer, _):
            assert answer.status == 200


async def test_the_style_sheet_proves_no_connection(server: Running) -> None:
    proven: list[str] = []
    door = TokenDoor(config(server))
    async with page(door, prove=lambda request: proven.append(request.path)) as url:
        for token in ("wrong", "admin-token"):
            for path in ("/ui/style.css", "/ui/", "/ui/other", "/ui"):
                async with asked(url + path, Authorization=f"Bearer {token}"):
                    pass
    assert proven == ["/ui/"]


async def test_names_in_a_path_are_no_query_of_the_api_server(server: Running) -> None:
    async with page(TokenDoor(config(server))) as url:
        for name in ("%3Fwatch=true", "%2e", "x%3Fa=b"):
            path = URL(f"{url}/ui/namespaces/default/pods/{name}", encoded=True)
            async with asked(path, Authorization="Bearer admin-token") as (answer, text):
                assert (answer.status, "the web page has no" in text) == (404, True)
