"""Content negotiation: the form of responses and the media type of bodies.

Responses are JSON or YAML: the full object, a Table or metadata only. Clients that prefer protobuf
get JSON, which all of them read. Source: API docs "Alternate representations of resources".
"""

from __future__ import annotations

from dataclasses import dataclass

from moorage.api.errors import NotAcceptableError, UnsupportedMediaTypeError
from moorage.api.remembered import remembered
from moorage.registry.codec import Media

TABLE = "Table"
PARTIAL = "PartialObjectMetadata"
PARTIAL_LIST = "PartialObjectMetadataList"

_JSON = "application/json"
_YAML = "application/yaml"
_PROTOBUF = "application/vnd.kubernetes.protobuf"
_META_VERSIONS = frozenset({"v1", "v1beta1"})

_ACCEPTED = (
    "only the following media types are accepted: application/json, application/yaml, "
    "application/vnd.kubernetes.protobuf"
)
_BODY_TYPES = {_JSON: Media.JSON, _YAML: Media.YAML, _PROTOBUF: Media.PROTOBUF}


@dataclass(frozen=True, slots=True)
class Representation:
    """Form of a response. `as_` is empty for the full object; `version` is meta.k8s.io's."""

    is_yaml: bool = False
    as_: str = ""
    version: str = "v1"

    @property
    def content_type(self) -> str:
        return _YAML if self.is_yaml else _JSON


PLAIN = Representation()


@remembered(256)
def negotiate(accept: str, transforms: frozenset[str]) -> Representation:
    """Return the form of the first acceptable clause. `transforms` are those available.

    Raises NotAcceptableError when no clause is acceptable.
    """
    if not accept:
        return PLAIN
    for clause in accept.split(","):
        form = _form(clause, transforms)
        if form is not None:
            return form
    raise NotAcceptableError(_ACCEPTED)


def _form(clause: str, transforms: frozenset[str]) -> Representation | None:
    media, parameters = _parse_clause(clause)
    if media not in (_JSON, _YAML, _PROTOBUF, "*/*"):
        return None
    as_ = parameters.get("as", "")
    if not as_:
        return Representation(is_yaml=media == _YAML)
    is_known = (
        as_ in transforms
        and parameters.get("g") == "meta.k8s.io"
        and parameters.get("v") in _META_VERSIONS
    )
    # A Table has no protobuf form; clients that request one accept JSON second.
    if not is_known or (media == _PROTOBUF and as_ == TABLE):
        return None
    return Representation(is_yaml=media == _YAML, as_=as_, version=parameters["v"])


def _parse_clause(clause: str) -> tuple[str, dict[str, str]]:
    media, *rest = clause.split(";")
    parameters = dict(part.strip().partition("=")[::2] for part in rest)
    return media.strip().lower(), parameters


def accepts_gzip(accept_encoding: str) -> bool:
    """Return whether a client takes gzip: named, without weight 0. Source: RFC 9110 §12.5.3."""
    for clause in accept_encoding.split(","):
        coding, parameters = _parse_clause(clause)
        if coding == "gzip":
            return parameters.get("q", "1").strip("0.") != ""
    return False


def body_media(content_type: str) -> Media:
    """Return the media type of a body; without a Content-Type it is JSON.

    Raises UnsupportedMediaTypeError.
    """
    if not content_type:
        return Media.JSON
    media = _BODY_TYPES.get(content_type.partition(";")[0].strip().lower())
    if media is None:
        raise UnsupportedMediaTypeError(
            "the body of the request was in an unknown format - accepted media types include: "
            + ", ".join((_JSON, _YAML, _PROTOBUF))
        )
    return media
