"""Downloads count with their digest alone, and are bounded."""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web

from moorage.cluster.access.identities import Authority, Subject
from moorage.runtimes.installing import RuntimeInstallationError
from moorage.runtimes.installing.downloads import download, name_of
from moorage.wire.serving import server_context

CONTENT = b"a runtime" * 1000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    async def file(_: web.Request) -> web.Response:
        return web.Response(body=CONTENT)

    async def cut(request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse(headers={"Content-Length": str(len(CONTENT))})
        await reply.prepare(request)
        await reply.write(CONTENT[:10])
        assert request.transport is not None
        request.transport.close()
        return reply

    async def around(_: web.Request) -> web.Response:
        raise web.HTTPFound("/around")

    async def away(_: web.Request) -> web.Response:
        raise web.HTTPFound("http://a..b/")

    application = web.Application()
    application.router.add_get("/file.tar.gz", file)
    application.router.add_get("/cut", cut)
    application.router.add_get("/around", around)
    application.router.add_get("/away", away)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    host, port = runner.addresses[0][:2]
    yield f"{'https' if tls else 'http'}://{host}:{port}"
    await runner.cleanup()


@pytest.fixture
async def address() -> AsyncIterator[str]:
    async with serving() as started:
        yield started


async def test_servers_of_the_systems_authorities_are_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in our programs, whose default TLS contexts of aiohttp have no authorities."""
    authority = Authority(tmp_path / "pki", datetime.now(UTC))
    pair = authority.issue("server", Subject("server", hosts=("127.0.0.1",)))
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.pair.certificate))
    without = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    monkeypatch.setattr("aiohttp.connector._SSL_CONTEXT_VERIFIED", without)
    async with serving(server_context(pair.certificate, pair.key)) as secure:
        path = await download(f"{secure}/file.tar.gz", DIGEST, tmp_path)
        assert path.read_bytes() == CONTENT
        monkeypatch.delenv("SSL_CERT_FILE")
        with pytest.raises(RuntimeInstallationError, match="certificate verify failed"):
            await download(f"{secure}/file.tar.gz?again", "0" * 64, tmp_path)


async def test_a_file_with_its_digest_is_kept_and_not_fetched_again(
    address: str, tmp_path: Path
) -> None:
    path = await download(f"{address}/file.tar.gz?x=1", DIGEST, tmp_path)
    assert path == tmp_path / DIGEST / "file.tar.gz"
    assert path.read_bytes() == CONTENT
    assert await download("http://127.0.0.1:1/file.tar.gz", DIGEST, tmp_path) == path


@pytest.mark.parametrize(
    ("path", "digest", "most", "problem"),
    [
        ("/file.tar.gz", "0" * 64, 10**6, "does not have the SHA-256 digest 000"),
        ("/file.tar.gz", DIGEST, 8999, "has more than 8999 bytes"),
        ("/none", DIGEST, 10**6, "answered 404 Not Found"),
        ("/cut", DIGEST, 10**6, "cannot be fetched"),
        ("/around", DIGEST, 10**6, "cannot be fetched"),
        ("/away", DIGEST, 10**6, "cannot be fetched"),
    ],
)
async def test_nothing_is_left_of_what_is_refused(
    address: str, tmp_path: Path, path: str, digest: str, most: int, problem: str
) -> None:
    with pytest.raises(RuntimeInstallationError, match=problem):
        await download(f"{address}{path}", digest, tmp_path, most_bytes=most)
    assert not _files(tmp_path)


def _files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


async def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeInstallationError, match=r"127\.0\.0\.1:1/x cannot be"):
        await download("http://127.0.0.1:1/x", DIGEST, tmp_path)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://example.org/a/runsc-1.2.tar.xz", "runsc-1.2.tar.xz"),
        ("https://example.org/a/runsc?x=/y", "runsc"),
        ("https://example.org", "runtime"),
        ("https://example.org/", "runtime"),
        ("https://example.org/%2e%2e", "runtime"),
        ("https://example.org/.hidden", "runtime"),
        ("https://example.org/a%2Fb", "b"),
        ("https://example.org/" + "a" * 200, "runtime"),
    ],
)
def test_a_name_is_never_a_way_out(url: str, name: str) -> None:
    assert name_of(url) == name


@pytest.mark.parametrize(
    "url", ["http://[", "http://[::1", "http://a..b/x", f"http://{'a' * 64}/x"]
)
async def test_an_address_that_is_none_cannot_be_fetched(url: str, tmp_path: Path) -> None:
    with pytest.raises(RuntimeInstallationError, match="cannot be fetched"):
        await download(url, DIGEST, tmp_path)


@pytest.mark.parametrize(
    ("path", "digest"), [("/file.tar.gz", "0" * 64), ("/none", DIGEST), ("/cut", DIGEST)]
)
async def test_no_message_has_a_secret_of_an_address(
    address: str, tmp_path: Path, path: str, digest: str
) -> None:
    host = address.partition("://")[2]
    url = f"http://robot:hunter2@{host}{path}?X-Amz-Signature=abcdef#key"
    with pytest.raises(RuntimeInstallationError) as failure:
        await download(url, digest, tmp_path)
    assert str(failure.value).startswith(f"http://***@{host}{path}?***")
    for secret in ("hunter2", "robot", "abcdef", "key", DIGEST if digest != DIGEST else "hunter2"):
        assert secret not in str(failure.value)
    assert failure.value.__cause__ is None
