from __future__ import annotations

import pytest

from moorage.api.errors import NotAcceptableError, UnsupportedMediaTypeError
from moorage.apiserver.endpoints.negotiation import (
    PARTIAL,
    PARTIAL_LIST,
    TABLE,
    Representation,
    accepts_gzip,
    body_media,
    check_representable,
    check_shape,
    check_streamed,
    error_form,
    negotiate,
)
from moorage.apiserver.registry.codec import Media

TABLES = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,"
    "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)
PROTOBUF = "application/vnd.kubernetes.protobuf"


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", Representation()),
        ("*/*", Representation()),
        ("application/json", Representation()),
        ("application/yaml", Representation(media=Media.YAML)),
        (f"{PROTOBUF},application/json", Representation(Media.PROTOBUF)),
        (f"{PROTOBUF}, */*", Representation(Media.PROTOBUF)),
        (PROTOBUF, Representation(Media.PROTOBUF)),
        (f"application/json, {PROTOBUF}", Representation()),
        (f"application/json;q=0.5, {PROTOBUF}", Representation(Media.PROTOBUF)),
        (f"*/*, {PROTOBUF}", Representation(Media.PROTOBUF)),
        (f"application/*, {PROTOBUF};q=odd", Representation(Media.PROTOBUF)),
        (f"{PROTOBUF};stream=watch", Representation(Media.PROTOBUF)),
        ("application/json;stream=watch", Representation()),
        ("application/json;stream=other, application/yaml", Representation(media=Media.YAML)),
        ("application/yaml;stream=watch, application/json", Representation()),
        ("application/json;pretty=1", Representation(is_indented=True)),
        ("application/json;pretty=0", Representation()),
        (TABLES, Representation(as_="Table")),
        (
            "application/yaml;as=Table;v=v1;g=meta.k8s.io",
            Representation(media=Media.YAML, as_="Table"),
        ),
        (f"{PROTOBUF};as=Table;v=v1;g=meta.k8s.io,application/json", Representation()),
        ("text/html, application/json;q=0.9", Representation()),
        ("APPLICATION/YAML", Representation(media=Media.YAML)),
        ("*/*;as=Table;v=v1;g=meta.k8s.io", Representation(as_="Table")),
        (
            "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
            Representation(as_="Table", version="v1beta1"),
        ),
        (
            "application/json;as=Table;v=v2;g=meta.k8s.io,application/yaml",
            Representation(media=Media.YAML),
        ),
        (
            "application/json;as=Table;v=v1;g=other,application/yaml",
            Representation(media=Media.YAML),
        ),
        ("application/json;as=Table;v=v1,application/yaml", Representation(media=Media.YAML)),
        (
            "application/json;as=Odd;v=v1;g=meta.k8s.io,application/yaml",
            Representation(media=Media.YAML),
        ),
        (
            f"{PROTOBUF};as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            Representation(Media.PROTOBUF, "PartialObjectMetadata"),
        ),
    ],
)
def test_the_first_clause_that_fits_decides(accept: str, form: Representation) -> None:
    representation = negotiate(accept, True, True)
    assert representation == form
    assert representation.content_type == form.media.value


@pytest.mark.parametrize(
    "accept",
    ["text/html", "application/cbor", "application/*", f"{PROTOBUF};as=Table;v=v1;g=meta.k8s.io"],
)
def test_unsupported_media_type_is_not_acceptable(accept: str) -> None:
    with pytest.raises(NotAcceptableError) as refused:
        negotiate(accept, True, True)
    assert str(refused.value) == (
        "only the following media types are accepted: application/json, application/yaml, "
        "application/vnd.kubernetes.protobuf"
    )


@pytest.mark.parametrize("is_collection", [True, False])
def test_a_header_without_any_media_type_of_the_api(is_collection: bool) -> None:
    for accept in ("*/*;q=0", f"text/html, {PROTOBUF};as=Odd", " application/yaml "):
        check_representable(accept, is_collection=is_collection)
    streams = ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
    for accept in ("text/html", "application/*", "application/cbor, text/plain"):
        with pytest.raises(NotAcceptableError) as refused:
            check_representable(accept, is_collection=is_collection)
        assert refused.value.message == (
            "406: Not Acceptable\n\nAvailable representations: application/json, "
            "application/yaml, application/vnd.kubernetes.protobuf"
            + (streams if is_collection else "")
        )


def test_a_table_of_what_has_none_is_not_acceptable() -> None:
    with pytest.raises(NotAcceptableError):
        negotiate("application/json;as=Table;v=v1;g=meta.k8s.io", False, True)


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (f"{PROTOBUF},application/json", Representation()),
        (f"{PROTOBUF},application/yaml", Representation(Media.YAML)),
        (
            f"{PROTOBUF};as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json",
            Representation(Media.PROTOBUF, PARTIAL),
        ),
        ("application/*", Representation()),
        (PROTOBUF, None),
    ],
)
def test_custom_resources_have_only_their_metadata_in_protobuf(
    accept: str, form: Representation | None
) -> None:
    if form is None:
        with pytest.raises(NotAcceptableError):
            negotiate(accept, True, False)
    else:
        assert negotiate(accept, True, False) == form


def test_an_error_is_in_a_form_of_objects_or_indented() -> None:
    assert error_form(PROTOBUF) == Representation(Media.PROTOBUF)
    assert error_form(TABLES) == Representation()
    assert error_form("application/json;as=Table;v=v1;g=meta.k8s.io, application/yaml") == (
        Representation(Media.YAML)
    )
    assert error_form("text/html") == Representation(is_indented=True)


def test_yaml_is_not_streamed() -> None:
    for media in (Media.JSON, Media.PROTOBUF):
        check_streamed(Representation(media))
    with pytest.raises(NotAcceptableError) as refused:
        check_streamed(Representation(Media.YAML))
    assert str(refused.value) == (
        "only the following media types are accepted: application/json;stream=watch, "
        "application/vnd.kubernetes.protobuf;stream=watch"
    )


@pytest.mark.parametrize(
    ("as_", "is_list", "message"),
    [
        (PARTIAL, False, ""),
        (PARTIAL_LIST, True, ""),
        (TABLE, True, ""),
        ("", True, ""),
        (PARTIAL, True, "you requested PartialObjectMetadata, but the requested object is a list "
                        "(*core.PodList)"),
        (PARTIAL_LIST, False, "you requested PartialObjectMetadataList, but the requested object "
                              "is not a list (*core.PodList)"),
    ],
)  # fmt: skip
def test_the_metadata_of_a_list_is_a_list(as_: str, is_list: bool, message: str) -> None:
    form = Representation(as_=as_)
    if not message:
        check_shape(form, "*core.PodList", is_list=is_list)
        return
    with pytest.raises(NotAcceptableError) as refused:
        check_shape(form, "*core.PodList", is_list=is_list)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("content_type", "media"),
    [
        ("", Media.JSON),
        ("application/json; charset=utf-8", Media.JSON),
        ("application/yaml", Media.YAML),
        (PROTOBUF, Media.PROTOBUF),
        (" Application/JSON ;x=y", Media.JSON),
    ],
)
def test_bodies_come_in_three_media(content_type: str, media: Media) -> None:
    assert body_media(content_type) is media


@pytest.mark.parametrize("content_type", ["text/plain", "application/cbor"])
def test_other_bodies_are_unsupported(content_type: str) -> None:
    with pytest.raises(UnsupportedMediaTypeError, match="accepted media types include"):
        body_media(content_type)


@pytest.mark.parametrize(
    ("accept_encoding", "is_accepted"),
    [("gzip", True), ("br, gzip;q=0.5", True), ("GZIP", True), ("gzip;q=1.000", True),
     ("", False), ("identity", False), ("xgzip", False), ("gzip;q=0", False),
     ("gzip; q=0.000", False), ("br;q=1, gzip;q=0.0", False)],
)  # fmt: skip
def test_gzip_is_sent_to_clients_that_name_it(accept_encoding: str, is_accepted: bool) -> None:
    assert accepts_gzip(accept_encoding) is is_accepted
