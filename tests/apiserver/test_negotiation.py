from __future__ import annotations

import pytest

from moorage.api.errors import NotAcceptableError, UnsupportedMediaTypeError
from moorage.apiserver.negotiation import (
    PARTIAL,
    TABLE,
    Representation,
    accepts_gzip,
    body_media,
    negotiate,
)
from moorage.registry.codec import Media

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
        ("application/yaml", Representation(is_yaml=True)),
        (f"{PROTOBUF},application/json", Representation()),
        (f"{PROTOBUF}, */*", Representation()),
        (PROTOBUF, Representation()),
        (TABLES, Representation(as_="Table")),
        ("application/yaml;as=Table;v=v1;g=meta.k8s.io", Representation(is_yaml=True, as_="Table")),
        (f"{PROTOBUF};as=Table;v=v1;g=meta.k8s.io,application/json", Representation()),
        ("text/html, application/json;q=0.9", Representation()),
        ("APPLICATION/YAML", Representation(is_yaml=True)),
        ("*/*;as=Table;v=v1;g=meta.k8s.io", Representation(as_="Table")),
        (
            "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
            Representation(as_="Table", version="v1beta1"),
        ),
        (
            "application/json;as=Table;v=v2;g=meta.k8s.io,application/yaml",
            Representation(is_yaml=True),
        ),
        ("application/json;as=Table;v=v1;g=other,application/yaml", Representation(is_yaml=True)),
        ("application/json;as=Table;v=v1,application/yaml", Representation(is_yaml=True)),
        (
            "application/json;as=Odd;v=v1;g=meta.k8s.io,application/yaml",
            Representation(is_yaml=True),
        ),
        (
            f"{PROTOBUF};as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            Representation(as_="PartialObjectMetadata"),
        ),
    ],
)
def test_the_first_clause_that_fits_decides(accept: str, form: Representation) -> None:
    representation = negotiate(accept, frozenset({TABLE, PARTIAL}))
    assert representation == form
    assert representation.content_type == (
        "application/yaml" if form.is_yaml else "application/json"
    )


@pytest.mark.parametrize("accept", ["application/*", "text/html", "application/cbor"])
def test_unsupported_media_type_is_not_acceptable(accept: str) -> None:
    with pytest.raises(NotAcceptableError, match="only the following media types are accepted"):
        negotiate(accept, frozenset({TABLE}))


def test_a_table_of_what_has_none_is_not_acceptable() -> None:
    with pytest.raises(NotAcceptableError):
        negotiate("application/json;as=Table;v=v1;g=meta.k8s.io", frozenset())


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
