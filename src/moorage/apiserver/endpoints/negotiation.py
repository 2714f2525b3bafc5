"""Content negotiation: the form of responses and the media type of bodies.

Responses are JSON, YAML or protobuf: the full object, a Table or metadata only. The clauses of an
Accept header are tried by weight, then in their order; the first that can be served decides.
Source: API docs "Alternate representations of resources"; apiserver `handlers/negotiation`.
"""

from __future__ import annotations

import msgspec

from moorage.api.errors import NotAcceptableError, UnsupportedMediaTypeError
from moorage.api.remembered import remembered
from moorage.apiserver.registry.codec import Media

TABLE = "Table"
PARTIAL = "PartialObjectMetadata"
PARTIAL_LIST = "PartialObjectMetadataList"

_META_VERSIONS = frozenset({"v1", "v1beta1"})
_TRANSFORMS = frozenset({TABLE, PARTIAL, PARTIAL_LIST})
# In the order in which a wildcard takes them.
_MEDIA = {media.value: media for media in (Media.JSON, Media.YAML, Media.PROTOBUF)}
_STREAMED = (Media.JSON, Media.PROTOBUF)
_WATCH = "watch"
_NO_REPRESENTATION = "406: Not Acceptable\n\nAvailable representations: {}"
_NOT_ACCEPTABLE = "only the following media types are accepted: {}"
_ACCEPTED = ", ".join(_MEDIA)
_ACCEPTED_STREAMS = ", ".join(f"{media.value};stream={_WATCH}" for media in _STREAMED)


class Representation(msgspec.Struct, frozen=True):
    """Form of a response. `as_` is empty for the full object; `version` is meta.k8s.io's."""

    media: Media = Media.JSON
    as_: str = ""
    version: str = "v1"
    is_indented: bool = False

    @property
    def content_type(self) -> str:
        return self.media.value


PLAIN = Representation()


@remembered(256)
def negotiate(accept: str, has_transforms: bool, has_protobuf: bool) -> Representation:
    """Return the form of the first acceptable clause.

    `has_transforms`: the answer may be a Table or metadata alone. `has_protobuf`: whole objects
    have a protobuf form, which custom resources have not.
    Raises NotAcceptableError when no clause is acceptable.
    """
    if not accept:
        return PLAIN
    for media, parameters in _clauses(accept):
        form = _form(media, parameters, has_transforms, has_protobuf)
        if form is not None:
            return form
    raise NotAcceptableError(_NOT_ACCEPTABLE.format(_ACCEPTED))


def check_representable(accept: str, *, is_collection: bool) -> None:
    """Raise NotAcceptableError for a header that names no media type of the API's own kinds.

    Their routes compare before any parameter counts. Source: go-restful's `matchesAccept`.
    """
    media = {_parse_clause(clause)[0] for clause in accept.split(",")}
    if media.isdisjoint((*_MEDIA, "*/*")):
        listed = f"{_ACCEPTED}, {_ACCEPTED_STREAMS}" if is_collection else _ACCEPTED
        raise NotAcceptableError(_NO_REPRESENTATION.format(listed), {})


def error_form(accept: str) -> Representation:
    """Return the form of an error: indented JSON for a client that takes no form of a Status."""
    try:
        return negotiate(accept, False, True)
    except NotAcceptableError:
        return Representation(is_indented=True)


def check_streamed(form: Representation) -> None:
    """Raise NotAcceptableError unless a watch can be in that form."""
    if form.media not in _STREAMED:
        raise NotAcceptableError(_NOT_ACCEPTABLE.format(_ACCEPTED_STREAMS))


def check_shape(form: Representation, go_type: str, *, is_list: bool) -> None:
    """Raise NotAcceptableError for the metadata form of a list on one object, or the reverse.

    `go_type` is upstream's name of the answer's type, which the error has.
    """
    if form.as_ == PARTIAL and is_list:
        why = f"the requested object is a list ({go_type})"
    elif form.as_ == PARTIAL_LIST and not is_list:
        why = f"the requested object is not a list ({go_type})"
    else:
        return
    raise NotAcceptableError(f"you requested {form.as_}, but {why}")


def _form(
    media_range: str, parameters: dict[str, str], has_transforms: bool, has_protobuf: bool
) -> Representation | None:
    # Routes of the API's own kinds do not know this range.
    if media_range == "application/*" and has_transforms and has_protobuf:
        return None
    for name, media in _MEDIA.items():
        if media_range not in (name, "application/*", "*/*"):
            continue
        if parameters.get("stream") and (parameters["stream"] != _WATCH or media not in _STREAMED):
            continue
        is_indented = parameters.get("pretty") == "1"
        if parameters.keys().isdisjoint(("as", "g", "v")):
            if media is Media.PROTOBUF and not has_protobuf:
                continue
            if media is Media.JSON and not is_indented:
                return PLAIN
            return Representation(media, is_indented=is_indented)
        as_, version = parameters.get("as", ""), parameters.get("v", "")
        is_known = (
            has_transforms
            and as_ in _TRANSFORMS
            and parameters.get("g") == "meta.k8s.io"
            and version in _META_VERSIONS
        )
        # A Table has no protobuf form; clients that request one accept JSON second.
        if is_known and not (media is Media.PROTOBUF and as_ == TABLE):
            return Representation(media, as_, version, is_indented)
    return None


def _clauses(accept: str) -> list[tuple[str, dict[str, str]]]:
    """Return the clauses of an Accept header: by weight, then those that name more."""
    clauses = [_parse_clause(clause) for clause in accept.split(",")]
    return sorted(
        clauses,
        key=lambda clause: (
            -_weight(clause[1]),
            clause[0].startswith("*"),
            clause[0].endswith("*"),
        ),
    )


def _weight(parameters: dict[str, str]) -> float:
    try:
        return float(parameters.get("q", "1"))
    except ValueError:
        return 0.0


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
    media = _MEDIA.get(content_type.partition(";")[0].strip().lower())
    if media is None:
        raise UnsupportedMediaTypeError(
            "the body of the request was in an unknown format - accepted media types include: "
            + _ACCEPTED
        )
    return media
