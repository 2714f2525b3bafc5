"""Request bodies as objects; large ones are decoded off the event loop."""

from __future__ import annotations

from dataclasses import dataclass

from moorage.apiserver.call import Call
from moorage.registry.codec import Codec, Decoded, strict_error
from moorage.registry.kind import Obj
from moorage.registry.request import Request
from moorage.registry.worker import Worker, is_large

_DELETE_OPTIONS_TYPE = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"


@dataclass(frozen=True, slots=True)
class BodyDecoder:
    """Reads and decodes the bodies of calls."""

    codec: Codec
    worker: Worker

    async def decode(self, call: Call, request: Request) -> Obj:
        """The object of a create or update, in the storage version.

        What strict validation finds is refused, warned of, or ignored. Raises BadRequestError,
        TooLargeError, UnsupportedMediaTypeError.
        """
        media = call.media()
        body = await call.body()
        request.is_large = is_large(body, media)
        decoded = await self.worker.run(
            request, self.codec.decode, call.kind, call.served, body, media
        )
        settle_complaints(decoded, request, call)
        return decoded.obj

    async def decode_as(
        self, call: Call, request: Request, name: str, api_version: str, type_name: str
    ) -> Obj:
        """The object of a body that is of one kind and type, whatever the path names."""
        media = call.media()
        body = await call.body()
        request.is_large = is_large(body, media)
        decoded = await self.worker.run(
            request, self.codec.decode_as, name, api_version, type_name, body, media
        )
        return decoded.obj

    async def delete_options(self, call: Call, request: Request) -> Obj:
        """The DeleteOptions in a body, empty without one."""
        body = await call.body()
        if not body.strip():
            return {}
        media = call.media()
        request.is_large = is_large(body, media)
        decoded = await self.worker.run(
            request,
            self.codec.decode_as,
            "DeleteOptions",
            "meta.k8s.io/v1",
            _DELETE_OPTIONS_TYPE,
            body,
            media,
            ("v1", call.served.api_version),
        )
        return decoded.obj


def settle_complaints(decoded: Decoded, request: Request, call: Call) -> None:
    """Apply `fieldValidation` to what decoding complained of. Raises BadRequestError."""
    if not decoded.complaints or request.field_validation == "Ignore":
        return
    if request.field_validation == "Strict":
        raise strict_error(call.kind.name, call.served.api_version, decoded.complaints)
    for complaint in decoded.complaints:
        request.warn(complaint)
