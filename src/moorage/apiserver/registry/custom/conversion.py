"""Conversion webhooks: objects of one version of a definition become objects of another.

A webhook may change everything but the identity: of the metadata only labels and annotations are
taken from its answer. Source: API docs `ConversionReview`; apiextensions
`apiserver/conversion/webhook_converter` of Kubernetes 1.36.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol

import msgspec

from moorage.api import bounds
from moorage.api.errors import FieldError, StatusError
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.metadata import annotation_errors, label_errors
from moorage.wire.webhooks import CallError

REVIEW_VERSIONS: Final = ("v1", "v1beta1")
WAIT_S: Final = 30.0
"""How long a conversion may wait for its turn; the call has a time limit of its own."""

_GROUP = "apiextensions.k8s.io"
_KIND = "ConversionReview"
_CALLS = 4
"""Calls of one webhook at a time."""
_ANSWER_BYTES = 3 * 1024 * 1024
_ANSWER_FACTOR = 4
"""An answer may have so many bytes, and those of the request times this."""

_LARGE_BYTES = 64 * 1024
_SHOWN = 256
_IDENTITY = (("name", "name"), ("namespace", "namespace"), ("uid", "UID"))
_MAPS = ("labels", "annotations")


class Post(Protocol):
    """Posts a review to the webhook of a `WebhookClientConfig`. Raises CallError."""

    def __call__(self, config: Obj, body: bytes, *, most_bytes: int) -> Awaitable[bytes]: ...


class ConversionError(StatusError):
    """An object cannot be converted to the version that is asked for."""


class _AnswerError(Exception):
    """What is wrong with an answer, or with one object in it."""


class _Result(msgspec.Struct):
    status: str = ""
    message: str = ""


class _Response(msgspec.Struct, rename="camel"):
    uid: str = ""
    converted_objects: list[msgspec.Raw] | None = None
    result: _Result = msgspec.field(default_factory=_Result)


class _Review(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    response: _Response | None = None


_decoder = msgspec.json.Decoder(_Review)


@asynccontextmanager
async def in_turn(turn: asyncio.Lock | asyncio.Semaphore) -> AsyncIterator[None]:
    """Hold a lock or a semaphore. Raises ConversionError when it takes too long to get it."""
    try:
        async with asyncio.timeout(WAIT_S):
            await turn.acquire()
    except TimeoutError as error:
        raise ConversionError("too many conversions are waiting for the webhook") from error
    try:
        yield
    finally:
        turn.release()


class Converter:
    """Converts the objects of one definition by its webhook."""

    def __init__(self, definition: Obj, post: Post) -> None:
        """`definition` has the strategy `Webhook`."""
        spec = definition["spec"]
        self._group: str = spec["group"]
        self._kind: str = spec["names"]["kind"]
        webhook = spec["conversion"]["webhook"]
        self._config: Obj = webhook["clientConfig"]
        accepted = webhook.get("conversionReviewVersions", ())
        self._version = next((one for one in accepted if one in REVIEW_VERSIONS), "")
        self._post = post
        self._calls = asyncio.Semaphore(_CALLS)

    async def convert(self, objects: Sequence[Obj], source: str, target: str) -> list[Obj]:
        """Return objects without apiVersion and kind in another version, in the same order.

        Raises ConversionError, also when it takes too long.
        """
        failed = f"conversion webhook for {self._group}/{source}, Kind={self._kind}"
        if not self._version:
            raise ConversionError("no supported conversion review versions")
        head = {"apiVersion": f"{self._group}/{source}", "kind": self._kind}
        uid = str(uuid.uuid4())
        body = _request(self._version, uid, f"{self._group}/{target}", head, objects)
        try:
            answer = await self._answer(body)
            converted = _converted_objects(answer, self._version, uid)
        except (CallError, _AnswerError) as error:
            raise ConversionError(f"{failed} failed: {error}") from error
        if len(converted) != len(objects):
            raise ConversionError(
                f"{failed} returned {len(converted)} objects, expected {len(objects)}"
            )
        checked = []
        for index, (obj, raw) in enumerate(zip(objects, converted, strict=True)):
            is_alone = len(objects) == 1
            checked.append(self._checked(failed, target, index, obj, raw, is_alone=is_alone))
            if len(raw) > _LARGE_BYTES:
                # Others have their turn: decoding an object of megabytes takes a while.
                await asyncio.sleep(0)
        return checked

    async def _answer(self, body: bytes) -> bytes:
        async with in_turn(self._calls):
            most_bytes = _ANSWER_BYTES + _ANSWER_FACTOR * len(body)
            return await self._post(self._config, body, most_bytes=most_bytes)

    def _checked(
        self, failed: str, target: str, index: int, obj: Obj, raw: msgspec.Raw, *, is_alone: bool
    ) -> Obj:
        """Return a converted object with the original's metadata. Raises ConversionError."""
        what = "object" if is_alone else "converted object"
        try:
            new = self._decoded(target, raw)
        except _AnswerError as error:
            text = f"{failed} returned invalid {what} at index {index}: {error}"
            raise ConversionError(text) from error
        at = "" if is_alone else f" at index {index}"
        try:
            _check_identity(obj, new)
        except _AnswerError as error:
            raise ConversionError(f"{failed} returned invalid {what}{at}: {error}") from error
        try:
            metadata = _metadata_of(obj, new)
        except _AnswerError as error:
            in_object = "" if is_alone else f" in object at index {index}"
            text = f"{failed} returned invalid metadata{in_object}: {error}"
            raise ConversionError(text) from error
        rest = {key: new[key] for key in new if key not in ("apiVersion", "kind", "metadata")}
        return {"metadata": metadata, **rest}

    def _decoded(self, target: str, raw: msgspec.Raw) -> Obj:
        try:
            new = msgspec.json.decode(raw)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise _AnswerError(str(error)) from error
        if not isinstance(new, dict) or not isinstance(new.get("kind"), str):
            text = bytes(raw)[:_SHOWN].decode(errors="replace")
            raise _AnswerError(f"Object 'Kind' is missing in '{text}'")
        if excess := bounds.exceeded(new):
            raise _AnswerError(excess)
        expected = f"{self._group}/{target}"
        if new.get("apiVersion") != expected:
            given = str(new.get("apiVersion", ""))[:_SHOWN]
            raise _AnswerError(f"invalid groupVersion (expected {expected}, received {given})")
        if new["kind"] != self._kind:
            given = new["kind"][:_SHOWN]
            raise _AnswerError(f"invalid kind (expected {self._kind}, received {given})")
        return new


_NO_RESPONSE: Final[Obj] = {"uid": "", "convertedObjects": None, "result": {"metadata": {}}}
"""The response of a request, which upstream sends with its fields empty."""


def _request(version: str, uid: str, target: str, head: Obj, objects: Sequence[Obj]) -> bytes:
    return msgspec.json.encode(
        {
            "kind": _KIND,
            "apiVersion": f"{_GROUP}/{version}",
            "request": {
                "uid": uid,
                "desiredAPIVersion": target,
                "objects": [{**head, **obj} for obj in objects],
            },
            "response": _NO_RESPONSE,
        }
    )


def _converted_objects(body: bytes, version: str, uid: str) -> list[msgspec.Raw]:
    """Return the objects of an answer. Raises _AnswerError."""
    try:
        review = _decoder.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise _AnswerError(f"the answer is not a {_KIND}: {error}") from error
    response = review.response
    if version == "v1":
        _check_review(review, response, uid)
    if response is None:
        raise _AnswerError("no response provided")
    result = response.result
    if result.status != "Success":
        text = f"response.result.status was '{result.status[:_SHOWN]}', not 'Success'"
        raise _AnswerError(result.message[: 16 * _SHOWN] or text)
    return response.converted_objects or []


def _check_review(review: _Review, response: _Response | None, uid: str) -> None:
    """Check that an answer in v1 is one to the request; v1beta1 asks for neither."""
    expected = f"{_GROUP}/v1, Kind={_KIND}"
    given = f"{review.api_version[:_SHOWN]}, Kind={review.kind[:_SHOWN]}"
    if given != expected:
        raise _AnswerError(f"expected webhook response of {expected}, got {given}")
    if response is not None and response.uid != uid:
        raise _AnswerError(f'expected response.uid="{uid}", got "{response.uid[:_SHOWN]}"')


def _check_identity(obj: Obj, new: Obj) -> None:
    metadata = new.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    for field, shown in _IDENTITY:
        was, now = obj["metadata"].get(field, ""), metadata.get(field, "")
        if was != now:
            raise _AnswerError(f"must have the same {shown}: {was} != {str(now)[:_SHOWN]}")


def _metadata_of(obj: Obj, new: Obj) -> Obj:
    """Return the metadata of an object with the labels and annotations of its conversion."""
    if "metadata" not in new:
        raise _AnswerError("missing metadata in converted object")
    given = new["metadata"]
    if not isinstance(given, dict):
        raise _AnswerError(f"invalid metadata of type {_go_type(given)} in converted object")
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _MAPS}
    for field in _MAPS:
        values = given.get(field)
        if values is None:
            continue
        if not isinstance(values, dict):
            raise _AnswerError(
                f"invalid metadata.{field} of type {_go_type(values)} in converted object"
            )
        for key, value in values.items():
            if not isinstance(value, str):
                raise _AnswerError(
                    f"metadata.{field}[{key}] must be a string, but is {_go_type(value)} in "
                    "converted object"
                )
        if values != obj["metadata"].get(field, {}):
            _check_map(field, values)
        if values:
            metadata[field] = values
    return metadata


def _check_map(field: str, values: dict[str, str]) -> None:
    errors: list[FieldError] = (
        label_errors(values, "metadata.labels")
        if field == "labels"
        # The path is upstream's.
        else annotation_errors(values, "metadata.annotation")
    )
    texts = list(dict.fromkeys(str(error) for error in errors))
    if texts:
        raise _AnswerError(texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")


def _go_type(value: Any) -> str:
    match value:
        case bool():
            return "bool"
        case int():
            return "int64"
        case float():
            return "float64"
        case str():
            return "string"
        case list():
            return "[]interface {}"
        case dict():
            return "map[string]interface {}"
    return "<nil>"
