"""Links through the proxy: which are rewritten, and that nothing else of a page changes."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.apiserver.endpoints.proxy.headers import (
    PAGE_BYTES,
    is_page,
    rewrite_page,
    through_proxy,
)

PREFIX = "/api/v1/namespaces/d/pods/p/proxy"
HOSTS = ("10.0.0.1:80", "example.com:6443")


def rewrite(link: str) -> str:
    return through_proxy(link, HOSTS, PREFIX)


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("/x?a=b#c", f"{PREFIX}/x?a=b#c"),
        ("/", f"{PREFIX}/"),
        ("x/y", "x/y"),
        ("", ""),
        ("#part", "#part"),
        ("http://10.0.0.1:80/x", f"{PREFIX}/x"),
        ("http://example.com:6443/x", f"http://example.com:6443{PREFIX}/x"),
        ("https://example.org/x", "https://example.org/x"),
        ("//example.org/x", "//example.org/x"),
        (f"{PREFIX}/x", f"{PREFIX}/x"),
        ("javascript:alert(1)", "javascript:alert(1)"),
        ("http://[", "http://["),
    ],
)
def test_links(link: str, expected: str) -> None:
    assert rewrite(link) == expected


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ('<a href="/x">y</a>', '<a href="P/x">y</a>'),
        ("<A HREF=/x CLASS=b>y</A >", '<a href="P/x" class="b">y</A >'),
        ("a\n<p>\r\n <img src='/i.png' alt=\"x\" />", 'a\n<p>\r\n <img src="P/i.png" alt="x"/>'),
        ("<video poster='/p' src='/v' controls>", '<video poster="P/p" src="P/v" controls="">'),
        ('<a href="/x?a=1&amp;b=2">', '<a href="P/x?a=1&amp;b=2">'),
        ('<a title="&eacute;ß" href="/x">', '<a title="&#233;ß" href="P/x">'),
        ('<a title=\'a"b\' href="/x">', '<a title="a&quot;b" href="P/x">'),
        # What stays to the byte.
        ('<a  href = "x">&nbsp;&broken <!-- <a href="/x"> -->', None),
        ("<script>var page = '<a href=\"/x\">';</script>", None),
        ('<p href="/x"><!DOCTYPE html><![CDATA[ <', None),
        ("<a href='/x", None),
        ("", None),
    ],
)
def test_pages(page: str, expected: str | None) -> None:
    wanted = page if expected is None else expected.replace("P/", f"{PREFIX}/")
    assert rewrite_page(page.encode(), "", rewrite) == wanted.encode()


def test_encodings_are_decoded_up_to_a_bound() -> None:
    page = b'<a href="/x">'
    raw = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    deflated = raw.compress(page) + raw.flush()
    expected = f'<a href="{PREFIX}/x">'.encode()
    assert rewrite_page(gzip.compress(page), "gzip", rewrite) == expected
    assert rewrite_page(deflated, "deflate", rewrite) == expected
    assert rewrite_page(gzip.compress(bytes(100 * PAGE_BYTES)), "gzip", rewrite) is None
    assert rewrite_page(gzip.compress(page)[:-3], "gzip", rewrite) is None
    assert rewrite_page(b"no gzip", "gzip", rewrite) is None
    assert rewrite_page(bytes(PAGE_BYTES + 1), "", rewrite) is None


@pytest.mark.parametrize(
    ("content_type", "encoding", "expected"),
    [
        ("text/html", "", True),
        ("TEXT/HTML; charset=utf-8", "GZIP", True),
        ("text/html", "br", False),
        ("text/plain", "", False),
        ("", "", False),
    ],
)
def test_which_answers_are_pages(content_type: str, encoding: str, expected: bool) -> None:
    assert is_page(content_type, encoding) is expected


@given(st.lists(st.sampled_from(["<a", " href=", "/x", '"', "'", ">", "<", "/", "!", "-", "[", "?",
                                 "script", "&#", ";", "\n", "\0", "é", "</", "]]>"])))  # fmt: skip
def test_no_page_is_too_broken(pieces: list[str]) -> None:
    page = "".join(pieces).encode()
    same = rewrite_page(page, "", lambda link: link)
    assert same in (page, None)
    rewrite_page(page, "", rewrite)
