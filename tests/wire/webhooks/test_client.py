"""Calls of webhooks over TLS: who is trusted, what is sent, and which answers are errors."""

from __future__ import annotations

import asyncio
import base64
import gzip
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from moorage.api.errors import UnavailableError
from moorage.cluster.access.identities import Authority, Subject
from moorage.wire.webhooks import (
    LARGE_ANSWER_BYTES,
    MAX_ANSWER_BYTES,
    CallError,
    LargeAnswerTurns,
    TlsContexts,
    WebhookClient,
    read_bounded,
)
from tests.clocks import settle
from tests.ports import free_port

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
_SERVICE = "hook.shop.svc"


class Hook:
    """A server whose answer a test chooses. `asked` has each request's head and body."""

    def __init__(self, authority: Authority, port: int) -> None:
        self.authority = authority
        self.port = port
        self.asked: list[tuple[web.BaseRequest, bytes]] = []
        self.answer: Handler = self.echo
        self.at_once = self.most_at_once = 0

    async def echo(self, request: web.BaseRequest) -> web.StreamResponse:
        del request
        return web.Response(body=b"answered")

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append((request, await request.read()))
        return await self.answer(request)

    @property
    def bundle(self) -> str:
        return base64.b64encode(self.authority.pair.certificate.read_bytes()).decode()

    def by_url(self, path: str = "/validate", **more: Any) -> dict[str, Any]:
        url = f"https://127.0.0.1:{self.port}{path}"
        return {"url": url, "caBundle": self.bundle, **more}

    def by_service(self, **more: Any) -> dict[str, Any]:
        service = {"namespace": "shop", "name": "hook", **more}
        return {"service": service, "caBundle": self.bundle}

    def service_authority(self, namespace: str, name: str, port: int) -> str:
        if (namespace, name) != ("shop", "hook"):
            raise UnavailableError(f'no endpoints available for service "{name}"')
        self.service_port = port
        return f"127.0.0.1:{self.port}"


@pytest.fixture
async def hook(tmp_path: Path) -> AsyncIterator[Hook]:
    authority = Authority(tmp_path / "pki", datetime.now(UTC))
    async with serving(authority) as served:
        yield served


@asynccontextmanager
async def serving(authority: Authority) -> AsyncIterator[Hook]:
    pair = authority.issue("webhook", Subject("webhook", hosts=("127.0.0.1", _SERVICE)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    served = Hook(authority, free_port())
    runner = web.ServerRunner(web.Server(served.handle), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", served.port, ssl_context=context).start()
    try:
        yield served
    finally:
        await runner.cleanup()


@pytest.fixture
async def client(hook: Hook) -> AsyncIterator[WebhookClient]:
    async with WebhookClient(hook.service_authority) as client:
        yield client


async def failure(client: WebhookClient, config: dict[str, Any], timeout_s: float = 10) -> str:
    with pytest.raises(CallError) as caught:
        await client.post(config, b"{}", timeout_s)
    return str(caught.value)


# What is sent.


async def test_a_url_is_called_with_the_review_and_its_timeout(
    hook: Hook, client: WebhookClient
) -> None:
    assert await client.post(hook.by_url(), b'{"a":1}', 7) == b"answered"
    ((request, body),) = hook.asked
    assert (request.method, request.path_qs, body) == ("POST", "/validate?timeout=7s", b'{"a":1}')
    assert dict(request.headers) == {
        "Host": f"127.0.0.1:{hook.port}",
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
        "User-Agent": "kube-apiserver-admission",
        "Content-Length": "7",
    }


async def test_a_conversion_webhook_is_not_sent_its_timeout(
    hook: Hook, client: WebhookClient
) -> None:
    await client.post(hook.by_url("/convert"), b"{}", 7, announces_timeout=False)
    assert hook.asked[0][0].path_qs == "/convert"


@pytest.mark.parametrize(
    ("more", "port", "path"),
    [
        ({}, 443, "/"),
        ({"port": 8443}, 8443, "/"),
        ({"path": "/check/it"}, 443, "/check/it"),
        ({"path": "check"}, 443, "/check"),
    ],
)
async def test_a_service_is_called_at_a_pod_under_its_own_name(
    hook: Hook, client: WebhookClient, more: dict[str, Any], port: int, path: str
) -> None:
    await client.post(hook.by_service(**more), b"{}", 5)
    ((request, _),) = hook.asked
    assert hook.service_port == port
    assert request.headers["Host"] == f"{_SERVICE}:{port}"
    assert request.path_qs == f"{path}?timeout=5s"


async def test_connections_are_used_again_and_cookies_are_not_kept(
    hook: Hook, client: WebhookClient
) -> None:
    async def with_cookie(request: web.BaseRequest) -> web.StreamResponse:
        del request
        response = web.Response(body=b"x")
        response.set_cookie("session", "1")
        return response

    hook.answer = with_cookie
    for _ in range(3):
        await client.post(hook.by_url(), b"{}", 5)
    assert not any("Cookie" in request.headers for request, _ in hook.asked)
    peers = {
        request.transport.get_extra_info("peername")
        for request, _ in hook.asked
        if request.transport
    }
    assert len(peers) == 1


# Who is trusted.


async def test_another_authority_is_not_trusted(
    hook: Hook, client: WebhookClient, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other", datetime.now(UTC))
    bundle = base64.b64encode(other.pair.certificate.read_bytes()).decode()
    for _ in range(2):
        text = await failure(client, hook.by_url(caBundle=bundle))
        assert "certificate verify failed" in text
    assert hook.asked == []
    # What one bundle is trusted for counts for no other one.
    assert await client.post(hook.by_url(), b"{}", 5) == b"answered"
    assert "certificate verify failed" in await failure(client, hook.by_url(caBundle=""))


async def test_a_certificate_for_another_name_is_refused(hook: Hook, client: WebhookClient) -> None:
    config = hook.by_url()
    config["url"] = config["url"].replace("127.0.0.1", "127.0.0.2")
    assert await failure(client, config) != ""
    config = {**hook.by_service(), "service": {"namespace": "shop", "name": "hook"}}
    assert await client.post(config, b"{}", 5) == b"answered"


@pytest.mark.parametrize(
    ("bundle", "why"),
    [
        ("bm90IGEgY2VydGlmaWNhdGU=", "unable to load root certificates: "),
        ("!", "unable to load root certificates: no certificate is in it"),
        ("w6k=", "unable to load root certificates: "),
        ("IAo=", "unable to load root certificates: no certificate is in it"),
        ("_w==", "Invalid base64-encoded string"),
    ],
)
async def test_a_bundle_that_is_none_is_named(
    hook: Hook, client: WebhookClient, bundle: str, why: str
) -> None:
    text = await failure(client, hook.by_url(caBundle=bundle))
    beginning = f'Post "https://127.0.0.1:{hook.port}/validate?timeout=10s": '
    assert text.startswith(f"{beginning}{why}")
    assert hook.asked == []


async def test_a_bundle_may_have_notes_in_any_language(hook: Hook, client: WebhookClient) -> None:
    pem = hook.authority.pair.certificate.read_bytes()
    bundle = base64.b64encode("# Wurzel für Tests\n".encode() + pem).decode()
    assert await client.post(hook.by_url(caBundle=bundle), b"{}", 5) == b"answered"


def test_bundles_are_kept_in_the_order_of_their_use(hook: Hook) -> None:
    pem = hook.authority.pair.certificate.read_bytes()
    bundles = [base64.b64encode(pem + b"\n" * number).decode() for number in range(4)]
    contexts = TlsContexts(most=3)
    first, second, _ = [contexts.trusting(bundle) for bundle in bundles[:3]]
    assert contexts.trusting(bundles[0]) is first
    contexts.trusting(bundles[3])
    assert contexts.trusting(bundles[0]) is first
    assert contexts.trusting(bundles[1]) is not second


# Errors.


@pytest.mark.parametrize(
    ("status", "text", "message"),
    [
        (401, b"", "the server has asked for the client to provide credentials"),
        (403, b"", "the server does not allow access to the requested resource"),
        (404, b"nothing", "the server could not find the requested resource"),
        (405, b"", "the server does not allow this method on the requested resource"),
        (429, b"", "the server has received too many requests and has asked us to try again later"),
        (503, b"", "the server is currently unable to handle the request"),
        (500, b" broken\n", 'an error on the server ("broken") has prevented the request from '
         "succeeding"),
        (500, b"\xff!", 'an error on the server ("\ufffd!") has prevented the request from '
         "succeeding"),
        (502, b"", 'an error on the server ("unknown") has prevented the request from succeeding'),
        (599, b"x" * 500, f'an error on the server ("{"x" * 256}") has prevented the request from '
         "succeeding"),
        (400, b"no", "the server rejected our request for an unknown reason"),
        (418, b"", "the server rejected our request for an unknown reason"),
        (302, b"", "the server rejected our request for an unknown reason"),
        (300, b"", "the server rejected our request for an unknown reason"),
    ],
)  # fmt: skip
async def test_a_status_that_is_no_success_is_an_error(
    hook: Hook, client: WebhookClient, status: int, text: bytes, message: str
) -> None:
    async def refuse(request: web.BaseRequest) -> web.StreamResponse:
        del request
        headers = {"Location": f"https://127.0.0.1:{hook.port}/elsewhere"}
        return web.Response(status=status, body=text, headers=headers)

    hook.answer = refuse
    assert await failure(client, hook.by_url()) == message
    # Nothing is followed.
    assert len(hook.asked) == 1


@pytest.mark.parametrize("status", [200, 201, 299])
async def test_each_status_of_success_is_an_answer(
    hook: Hook, client: WebhookClient, status: int
) -> None:
    async def accept(request: web.BaseRequest) -> web.StreamResponse:
        del request
        return web.Response(status=status, body=b"yes")

    hook.answer = accept
    assert await client.post(hook.by_url(), b"{}", 5) == b"yes"


async def test_a_server_that_is_away_is_named(hook: Hook, client: WebhookClient) -> None:
    config = hook.by_url()
    config["url"] = f"https://127.0.0.1:{free_port()}/x"
    text = await failure(client, config)
    assert text.startswith(f'Post "{config["url"]}?timeout=10s": ')
    assert len(text) > len(f'Post "{config["url"]}?timeout=10s": ')


async def test_a_service_without_pods_is_named(client: WebhookClient) -> None:
    config = {"service": {"namespace": "shop", "name": "none", "path": "/x"}}
    assert await failure(client, config) == (
        'Post "https://none.shop.svc:443/x?timeout=10s": no endpoints available for service "none"'
    )


async def test_a_webhook_that_hangs_is_left(hook: Hook, client: WebhookClient) -> None:
    async def hang(request: web.BaseRequest) -> web.StreamResponse:
        del request
        await asyncio.Event().wait()
        raise AssertionError

    hook.answer = hang
    text = await failure(client, hook.by_url(), 0.2)
    assert text == (
        f'Post "https://127.0.0.1:{hook.port}/validate?timeout=0.2s": context deadline exceeded'
    )


async def test_a_url_without_a_host_is_named(client: WebhookClient) -> None:
    text = await failure(client, {"url": "https:///x"})
    assert text.startswith('Post "https:///x?timeout=10s": ')


async def test_an_answer_that_is_packed_all_the_same_is_not_unpacked(
    hook: Hook, client: WebhookClient
) -> None:
    packed = gzip.compress(b"x" * 100_000)

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        del request
        return web.Response(body=packed, headers={"Content-Encoding": "gzip"})

    hook.answer = answer
    assert await client.post(hook.by_url(), b"{}", 5) == packed


# Sizes.


def _sized(hook: Hook, size: int) -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        del request
        return web.Response(body=b"x" * size)

    hook.answer = answer


@pytest.mark.parametrize("size", [0, LARGE_ANSWER_BYTES, LARGE_ANSWER_BYTES + 1, 300_000])
async def test_an_answer_is_read_whole(hook: Hook, client: WebhookClient, size: int) -> None:
    _sized(hook, size)
    assert await client.post(hook.by_url(), b"{}", 10) == b"x" * size


async def test_an_answer_above_the_limit_is_an_error(hook: Hook, client: WebhookClient) -> None:
    _sized(hook, 200_001)
    with pytest.raises(CallError, match="the answer has more than 200000 bytes"):
        await client.post(hook.by_url(), b"{}", 10, most_bytes=200_000)
    _sized(hook, 200_000)
    assert len(await client.post(hook.by_url(), b"{}", 10, most_bytes=200_000)) == 200_000
    for most in (0, 100):
        with pytest.raises(CallError, match=f"the answer has more than {most} bytes"):
            await client.post(hook.by_url(), b"{}", 10, most_bytes=most)
    _sized(hook, MAX_ANSWER_BYTES + 1)
    assert await failure(client, hook.by_url()) == (
        f"the answer has more than {MAX_ANSWER_BYTES} bytes"
    )


@pytest.mark.parametrize(("hosts", "at_once"), [("a", 4), ("ab", 8), ("abcdef", 16)])
async def test_large_answers_are_read_a_few_at_a_time(hosts: str, at_once: int) -> None:
    turns, go_on, reading = LargeAnswerTurns(), asyncio.Event(), 0

    async def read(host: str) -> None:
        nonlocal reading
        async with turns.of(host):
            reading += 1
            await go_on.wait()

    readers = [asyncio.ensure_future(read(host)) for host in hosts for _ in range(10)]
    await settle()
    assert reading == at_once
    go_on.set()
    await asyncio.gather(*readers)
    assert reading == 10 * len(hosts)


async def test_only_a_large_answer_waits_for_a_turn_of_its_host(hook: Hook) -> None:
    turns = LargeAnswerTurns()
    begun = asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"x" * (LARGE_ANSWER_BYTES + 1))
        begun.set()
        return response

    async with AsyncExitStack() as others, WebhookClient(hook.service_authority, turns) as client:
        for _ in range(4):
            await others.enter_async_context(turns.of(f"127.0.0.1:{hook.port}"))
        _sized(hook, LARGE_ANSWER_BYTES)
        assert len(await client.post(hook.by_url(), b"{}", 20)) == LARGE_ANSWER_BYTES
        hook.answer = answer
        large = asyncio.ensure_future(client.post(hook.by_url(), b"{}", 20))
        await begun.wait()
        await settle()
        assert not large.done()
        await others.aclose()
        assert len(await large) == LARGE_ANSWER_BYTES + 1


async def test_one_webhook_has_64_connections_at_once(hook: Hook, client: WebhookClient) -> None:
    go_on, waiting = asyncio.Event(), asyncio.Semaphore(0)

    async def slowly(request: web.BaseRequest) -> web.StreamResponse:
        del request
        hook.at_once += 1
        hook.most_at_once = max(hook.most_at_once, hook.at_once)
        waiting.release()
        await go_on.wait()
        hook.at_once -= 1
        return web.Response()

    hook.answer = slowly
    calls = [asyncio.ensure_future(client.post(hook.by_url(), b"{}", 20)) for _ in range(70)]
    for _ in range(64):
        await waiting.acquire()
    go_on.set()
    await asyncio.gather(*calls)
    assert hook.most_at_once == 64


@pytest.mark.parametrize(("size", "most"), [(10, 10), (11, 10), (0, 10)])
async def test_an_answer_that_was_begun_is_bounded_as_a_whole(size: int, most: int) -> None:
    class Content:
        async def iter_any(self) -> AsyncIterator[bytes]:
            for _ in range(size - 4):
                yield b"x"

    content: Any = Content()
    begun = b"abcd"[:size]
    if size > most:
        with pytest.raises(CallError, match=f"the answer has more than {most} bytes"):
            await read_bounded(content, most, begun)
    else:
        assert await read_bounded(content, most, begun) == begun + b"x" * (size - 4)


async def test_nothing_is_open_at_the_end(hook: Hook) -> None:
    async with WebhookClient(hook.service_authority) as client:
        await client.post(hook.by_url(), b"{}", 5)
    with pytest.raises(RuntimeError, match="closed"):
        await client.post(hook.by_url(), b"{}", 5)
