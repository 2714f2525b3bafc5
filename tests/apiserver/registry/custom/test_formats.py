"""String and number formats of custom resource schemas."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.registry.custom.formats import fits_format


@pytest.mark.parametrize(
    ("format_", "good", "bad"),
    [
        ("bsonobjectid", ["507f1f77bcf86cd799439011"], ["507f1f77", "z" * 24]),
        ("uri", ["https://a.b/c", "/path", "mailto:x@y"], ["", "a b", "relative"]),
        ("email", ["a@b.c", "A B <a@b.c>"], ["a", "@b"]),
        ("hostname", ["a", "a.b-c.d"], ["-a", "a..b", "a" * 64]),
        ("ipv4", ["10.0.0.1"], ["10.0.0", "::1", "10.0.0.256"]),
        ("ipv6", ["::1"], ["10.0.0.1", ":::"]),
        ("cidr", ["10.0.0.0/8", "10.1.2.3/8", "::/0"], ["10.0.0.0", "10.0.0.0/33",
                                                         "10.0.0.0/255.0.0.0"]),
        ("mac", ["01:23:45:67:89:ab", "0123.4567.89ab"], ["01:23", "zz:23:45:67:89:ab"]),
        ("uuid", ["123e4567-e89b-12d3-a456-426614174000"], ["123e4567"]),
        ("uuid3", ["123e4567-e89b-32d3-a456-426614174000"],
         ["123e4567-e89b-12d3-a456-426614174000"]),
        ("uuid4", ["123e4567-e89b-42d3-a456-426614174000"],
         ["123e4567-e89b-42d3-1456-426614174000"]),
        ("uuid5", ["123e4567-e89b-52d3-b456-426614174000"],
         ["123e4567-e89b-42d3-b456-426614174000"]),
        ("isbn", ["0321751043", "978-0321751041"], ["0321751044"]),
        ("isbn10", ["0321751043", "080442957X"], ["978-0321751041"]),
        ("isbn13", ["978-0321751041"], ["978-0321751042"]),
        ("creditcard", ["4111 1111 1111 1111"], ["4111 1111 1111 1112", "1"]),
        ("ssn", ["111-22-3333"], ["111-222-333"]),
        ("hexcolor", ["#fff", "00FF00"], ["#ff", "#gggggg"]),
        ("rgbcolor", ["rgb(0, 10,255)"], ["rgb(256,0,0)"]),
        ("byte", ["aGk="], ["a"]),
        ("date", ["2026-02-28"], ["2026-02-30", "2026-2-1"]),
        ("duration", ["1h30m", "22 ns", "-1.5s", "3 days"], ["one", "3"]),
        ("date-time", ["2014-12-15T19:30:20.000Z", "2014-12-15t19:30:20+01:00"],
         ["2014-12-15", "2014-12-15T24:00:00Z"]),
        ("datetime", ["2014-12-15T19:30:20Z"], ["x"]),
        ("k8s-short-name", ["a-b"], ["a.b"]),
        ("k8s-long-name", ["a.b"], ["a_b"]),
        ("password", ["anything"], []),
    ],
)  # fmt: skip
def test_strings(format_: str, good: list[str], bad: list[str]) -> None:
    assert [text for text in good if not fits_format(format_, text)] == []
    assert [text for text in bad if fits_format(format_, text)] == []


@pytest.mark.parametrize(
    ("format_", "value", "fits"),
    [
        ("int32", 2**31 - 1, True),
        ("int32", 2**31, False),
        ("int32", -(2**31), True),
        ("int64", 2**63, False),
        ("float", 3.5e38, False),
        ("float", 1.5, True),
        ("double", 1e308, True),
        ("int32", True, True),
        ("ipv4", 5, True),
        ("ipv4", [], True),
    ],
)
def test_other_values(format_: str, value: Any, fits: bool) -> None:
    assert fits_format(format_, value) is fits
