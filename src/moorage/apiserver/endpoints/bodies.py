"""Request bodies: read to the end before processing, within a deadline and a budget.

A body counts from its first byte to the end of its request. Hot path: a small body has arrived with
its head and is read without waiting (bench/api.py).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import partial

import msgspec
from aiohttp import web
from aiohttp.web_protocol import RequestPayloadError

from moorage.api.errors import (
    BadRequestError,
    ServerTimeoutError,
    TooLargeError,
    TooManyRequestsError,
)
from moorage.apiserver.endpoints.call import Call
from moorage.apiserver.registry.codec import Codec, Decoded, Media, strict_error
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.request import Request
from moorage.apiserver.registry.worker import Worker, is_large
from moorage.wire.serving import Budget

# Request body decoding; large bodies are decoded off the event loop.

_DELETE_OPTIONS_TYPE = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"


class BodyDecoder(msgspec.Struct, frozen=True):
    """Reads and decodes the bodies of calls."""

    codec: Codec
    worker: Worker

    async def decode(self, call: Call, request: Request) -> Obj:
        """Return the object of a create or update, in the storage version.

        `fieldValidation` decides whether unknown and duplicate fields are refused, warned of or
        ignored. Raises BadRequestError, UnsupportedMediaTypeError.
        """
        decoded = await self._decoded(
            call, request, partial(self.codec.decode, call.kind, call.served)
        )
        _settle_complaints(decoded, request, call)
        return decoded.obj

    async def decode_as(
        self, call: Call, request: Request, name: str, api_version: str, type_name: str
    ) -> Obj:
        """Return the object of a body of the given kind and type, regardless of the path.

        Raises BadRequestError, UnsupportedMediaTypeError.
        """
        decode = partial(self.codec.decode_as, name, api_version, type_name)
        return (await self._decoded(call, request, decode)).obj

    async def delete_options(self, call: Call, request: Request) -> Obj:
        """Return the DeleteOptions in a body, empty without one. Raises as `decode_as`."""
        if not call.body.strip():
            return {}
        decode = partial(
            self.codec.decode_as, "DeleteOptions", "meta.k8s.io/v1", _DELETE_OPTIONS_TYPE,
            also=("v1", call.served.api_version),
        )  # fmt: skip
        return (await self._decoded(call, request, decode)).obj

    async def _decoded(
        self, call: Call, request: Request, decode: Callable[[bytes, Media], Decoded]
    ) -> Decoded:
        media = call.media()
        request.is_large = is_large(call.body, media)
        return await self.worker.run(request, decode, call.body, media)


def _settle_complaints(decoded: Decoded, request: Request, call: Call) -> None:
    """Apply `fieldValidation` to the decoding complaints. Raises BadRequestError."""
    if not decoded.complaints or request.field_validation == "Ignore":
        return
    if request.field_validation == "Strict":
        raise strict_error(call.kind.name, call.served.api_version, decoded.complaints)
    for complaint in decoded.complaints:
        request.warn(complaint)


LIMIT_BYTES = 3 * 1024 * 1024


class BodyLimits(msgspec.Struct, frozen=True, kw_only=True):
    """`within_s` is kube-apiserver's `--request-timeout`; the others bound unfinished bodies."""

    within_s: float = 60.0
    total_bytes: int = 128 * 1024 * 1024
    per_user_bytes: int = 32 * 1024 * 1024
    reading_per_user: int = 128


class Bodies:
    """Bodies of the requests being read or processed."""

    def __init__(self, limits: BodyLimits) -> None:
        self._limits = limits
        self._budget = Budget(total=limits.total_bytes, per_user=limits.per_user_bytes)
        self._reading = Budget(total=sys.maxsize, per_user=limits.reading_per_user)

    async def read(self, http: web.BaseRequest, share: str) -> bytes:
        """Read a request body to its end. Its bytes count against the budget until `release`.

        `share` is the user key that unfinished bodies count against, "" for exempt users.

        Raises TooLargeError beyond 3 MiB, ServerTimeoutError when it does not end in time,
        TooManyRequestsError when the user has too many unfinished bytes, BadRequestError for a
        malformed HTTP body.
        """
        declared = http.content_length
        if declared is not None and declared > LIMIT_BYTES:
            raise TooLargeError.limit(LIMIT_BYTES)
        content = http.content
        if content.is_eof():
            # The body has arrived completely.
            try:
                body = content.read_nowait(-1)
            except RequestPayloadError as error:
                raise _malformed(error) from error
            self._hold(share, len(body))
            return body
        return await self._read_slowly(http, share)

    def release(self, share: str, size: int) -> None:
        """Return the bytes of a finished request to the budget; `size` is in bytes."""
        self._budget.give_back(share, size)

    async def _read_slowly(self, http: web.BaseRequest, share: str) -> bytes:
        if not self._reading.take(share):
            raise _too_many("request bodies")
        pieces: list[bytes] = []
        is_whole = False
        try:
            async with asyncio.timeout(self._limits.within_s):
                await self._collect(http, share, pieces)
            is_whole = True
        except TimeoutError as error:
            raise ServerTimeoutError(
                "Timeout: request did not complete within the allotted timeout"
            ) from error
        except RequestPayloadError as error:
            raise _malformed(error) from error
        finally:
            self._reading.give_back(share)
            if not is_whole:
                self.release(share, sum(map(len, pieces)))
        return b"".join(pieces)

    async def _collect(self, http: web.BaseRequest, share: str, pieces: list[bytes]) -> None:
        size = 0
        while piece := await http.content.readany():
            size += len(piece)
            if size > LIMIT_BYTES:
                raise TooLargeError.limit(LIMIT_BYTES)
            self._hold(share, len(piece))
            pieces.append(piece)

    def _hold(self, share: str, size: int) -> None:
        if not self._budget.take(share, size):
            raise _too_many("bytes of request bodies")


def _malformed(error: Exception) -> BadRequestError:
    return BadRequestError(f"the request's body cannot be read: {error}")


def _too_many(what: str) -> TooManyRequestsError:
    return TooManyRequestsError(
        f"too many {what} of this user are unfinished, please try again later",
        {"retryAfterSeconds": 1},
    )
