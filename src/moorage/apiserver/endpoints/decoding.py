"""Request body decoding; large bodies are decoded off the event loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from moorage.apiserver.endpoints.call import Call
from moorage.apiserver.registry.codec import Codec, Decoded, Media, strict_error
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.request import Request
from moorage.apiserver.registry.worker import Worker, is_large

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
