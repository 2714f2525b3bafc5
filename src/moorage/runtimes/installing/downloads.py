"""Downloads of runtimes: an address into a file of which the digest is known.

The file counts only with its digest, so neither the server nor the way to it is trusted; what is
bounded is its size and the time.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import ssl
import tempfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

import aiohttp

from moorage.api.errors import OperationError
from moorage.api.text import without_secrets
from moorage.runtimes.probing.carrier import CarrierError, Outcome, ProbeCarrier
from moorage.runtimes.probing.host import HostFacts, read_host
from moorage.runtimes.probing.running import run_plain

# Errors of installing runtimes.


class RuntimeInstallationError(OperationError):
    """A runtime was not installed, upgraded or removed; what was there before is as before."""


class HandlerInUseError(RuntimeInstallationError):
    """A handler is not removed because pods run under it."""

    def __init__(self, handler: str, pods: Iterable[str]) -> None:
        names = ", ".join(sorted(pods))
        super().__init__(f"pods run under handler {handler}: {names}; delete them first")


# Proof that a handler works: the first container of the probes, by any carrier of them.

_DEADLINE_S = 60.0


class Proof:
    """Runs a container under a handler."""

    def __init__(self, carrier: ProbeCarrier) -> None:
        self._carrier = carrier
        self._host: HostFacts | None = None

    async def find_problem(self, handler: str) -> str:
        """Return why a container does not run under a handler, empty if it does.

        The sandbox is removed in any case, and those of a run that was killed are too.
        """
        if self._host is None:
            self._host = await asyncio.to_thread(read_host)
        try:
            await self._carrier.clean()
            result = await run_plain(self._carrier, handler, self._host, deadline_s=_DEADLINE_S)
        except CarrierError as error:
            return str(error)
        if result.outcome is Outcome.REFUSED:
            return f"its sandbox does not start: {result.error}"
        if result.outcome is Outcome.ENDED:
            code = result.exit_code
            return f"its container ended with status {code}" if code else ""
        return f"its container: {result.error}"


MOST_BYTES = 2 * 2**30
_TIMEOUT_S = 3600.0
_QUIET_S = 60.0
_CONNECT_S = 20.0
_CHUNK_BYTES = 2**18
_MOST_REDIRECTS = 5
_PLAIN_NAME = "runtime"


async def download(url: str, sha256: str, directory: Path, *, most_bytes: int = MOST_BYTES) -> Path:
    """Fetch a file into a directory, unless it exists there. Returns its path.

    Raises RuntimeInstallationError for any failure, and for another digest or too many bytes, with
    nothing left.
    """
    target = directory / sha256 / name_of(url)
    if await asyncio.to_thread(target.exists):
        return target
    await asyncio.to_thread(target.parent.mkdir, mode=0o700, parents=True, exist_ok=True)
    descriptor, scratch = tempfile.mkstemp(prefix=".new-", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            digest = await _fetch(url, file.fileno(), most_bytes)
        if digest != sha256:
            raise RuntimeInstallationError(
                f"{without_secrets(url)} does not have the SHA-256 digest {sha256}"
            )
        os.rename(scratch, target)
    except BaseException:
        await asyncio.to_thread(Path(scratch).unlink, missing_ok=True)
        raise
    return target


def name_of(url: str) -> str:
    """Return the file name in an address, a plain one if it has none that is usable."""
    try:
        path = urlsplit(url).path
    except ValueError:
        return _PLAIN_NAME
    name = PurePosixPath(unquote(path)).name
    is_usable = name.isascii() and name.isprintable() and not name.startswith(".")
    return name if name and is_usable and "/" not in name and len(name) <= 128 else _PLAIN_NAME


async def _fetch(url: str, descriptor: int, most_bytes: int) -> str:
    """Write what an address answers; return its digest."""
    shown = without_secrets(url)
    digest, left_bytes = hashlib.sha256(), most_bytes
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S, connect=_CONNECT_S, sock_read=_QUIET_S)
    # Of its own: aiohttp's has no authorities in the programs of ours (`cluster/importing.py`).
    authorities = await asyncio.to_thread(ssl.create_default_context)
    connector = aiohttp.TCPConnector(ssl=authorities)
    try:
        async with (
            aiohttp.ClientSession(
                connector=connector, timeout=timeout, auto_decompress=False
            ) as session,
            session.get(url, max_redirects=_MOST_REDIRECTS) as reply,
        ):
            if reply.status != 200:
                raise RuntimeInstallationError(f"{shown} answered {reply.status} {reply.reason}")
            async for chunk in reply.content.iter_chunked(_CHUNK_BYTES):
                left_bytes -= len(chunk)
                if left_bytes < 0:
                    raise RuntimeInstallationError(f"{shown} has more than {most_bytes} bytes")
                digest.update(chunk)
                await asyncio.to_thread(_write, descriptor, chunk)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        # ValueError: the encoding of a host name that is none, of a redirect too.
        # What aiohttp says of a connection has its own notes beside the reason.
        reason = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
        raise RuntimeInstallationError(
            f"{shown} cannot be fetched: {without_secrets(str(reason)) or 'no answer'}"
        ) from None
    return digest.hexdigest()


def _write(descriptor: int, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(descriptor, view) :]
