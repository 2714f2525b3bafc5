"""Headers and links of proxied requests and answers: which are passed on, which rewritten.

The caller's credentials stay here, and what belongs to one connection alone. Source: apimachinery
`util/proxy` of Kubernetes 1.36.
"""

from __future__ import annotations

import html
import zlib
from collections.abc import Callable, Iterator, Mapping
from html.parser import HTMLParser
from urllib.parse import SplitResult, urlsplit, urlunsplit

from aiohttp import web

from moorage.wire.streaming.upgrade import AnswerHead

# Links of a backend's answers: those to the backend itself lead through the proxy.
#
# They stand in redirects and in the tags of HTML pages. Only absolute paths need it: a relative
# link leads through the proxy anyway, and other hosts stay what they are. Source: apimachinery
# `util/proxy/transport.go` of Kubernetes 1.36.

PAGE_BYTES = 512 << 10
"""The largest page, compressed or not, whose links are rewritten; larger ones are passed on."""

_LINKS = {
    "a": ("href",), "applet": ("codebase",), "area": ("href",), "audio": ("src",),
    "base": ("href",), "blockquote": ("cite",), "body": ("background",), "button": ("formaction",),
    "command": ("icon",), "del": ("cite",), "embed": ("src",), "form": ("action",),
    "frame": ("longdesc", "src"), "head": ("profile",), "html": ("manifest",),
    "iframe": ("longdesc", "src"), "img": ("longdesc", "src", "usemap"),
    "input": ("src", "usemap", "formaction"), "ins": ("cite",), "link": ("href",),
    "object": ("classid", "codebase", "data", "usemap"), "q": ("cite",), "script": ("src",),
    "source": ("src",), "video": ("poster", "src"),
}  # fmt: skip
"""Attributes that hold links, by tag."""

_WINDOW_BITS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": -zlib.MAX_WBITS}

Rewrite = Callable[[str], str]


def through_proxy(link: str, hosts: tuple[str, str], prefix: str) -> str:
    """Return a link as clients of the proxy reach it.

    `hosts` are the backend's and the one that the client asked, as `host:port`; `prefix` is the
    path of the proxy.
    """
    try:
        target = urlsplit(link)
    except ValueError:
        return link
    backend, asked = hosts
    if target.netloc not in ("", backend, asked) or not target.path.startswith("/"):
        return link
    path = target.path if target.path.startswith(prefix) else prefix + target.path
    scheme, host = (target.scheme, asked) if target.netloc == asked else ("", "")
    return urlunsplit(SplitResult(scheme, host, path, target.query, target.fragment))


def is_page(content_type: str, encoding: str) -> bool:
    """Return whether an answer is HTML in an encoding that is understood."""
    is_html = content_type.partition(";")[0].strip().lower() == "text/html"
    return is_html and (not encoding or encoding.lower() in _WINDOW_BITS)


def rewrite_page(page: bytes, encoding: str, rewrite: Rewrite) -> bytes | None:
    """Return a page without encoding and with its links rewritten.

    None where it is too large, or is not what the encoding says.
    """
    if encoding:
        decoder = zlib.decompressobj(_WINDOW_BITS[encoding.lower()])
        try:
            page = decoder.decompress(page, PAGE_BYTES + 1)
        except zlib.error:
            return None
        if not decoder.eof:
            return None
    if len(page) > PAGE_BYTES:
        return None
    # Whatever the page's encoding, tags are ASCII, and other bytes stay what they are.
    text = page.decode("ascii", "surrogateescape")
    tags = _Tags(text, rewrite)
    try:
        tags.feed(text)
    except AssertionError:
        return None  # So the library refuses unknown declarations.
    pieces, end = [], 0
    for start, length, tag in tags.rewritten:
        pieces += [text[end:start], tag]
        end = start + length
    return "".join([*pieces, text[end:]]).encode("ascii", "surrogateescape")


class _Tags(HTMLParser):
    """Finds the start tags whose links change: (offset, length, new tag) of each."""

    def __init__(self, text: str, rewrite: Rewrite) -> None:
        super().__init__(convert_charrefs=False)
        self.rewritten: list[tuple[int, int, str]] = []
        self._rewrite = rewrite
        self._line_starts = [0]
        for line in text.split("\n"):
            self._line_starts.append(self._line_starts[-1] + len(line) + 1)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag with another link."""
        self._note(tag, attrs, ">")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag that ends itself, with another link."""
        self._note(tag, attrs, "/>")

    def _note(self, tag: str, attrs: list[tuple[str, str | None]], end: str) -> None:
        names = _LINKS.get(tag, ())
        changed = [
            (name, self._rewrite(value) if value and name in names else value)
            for name, value in attrs
        ]
        source = self.get_starttag_text()
        if changed == attrs or source is None:
            return
        shown = "".join(f' {name}="{_escaped(value or "")}"' for name, value in changed)
        line, column = self.getpos()
        offset = self._line_starts[line - 1] + column
        self.rewritten.append((offset, len(source), f"<{tag}{shown}{end}"))


def _escaped(value: str) -> str:
    """Return the value of an attribute as it stands in a tag."""
    return "".join(
        # Bytes that are not ASCII stay; characters that were references become some again.
        char if char.isascii() or "\udc80" <= char <= "\udcff" else f"&#{ord(char)};"
        for char in html.escape(value)
    )


_HOP_BY_HOP = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection",
    "te", "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip
_KEPT_BACK = frozenset({"authorization", "expect", "sec-websocket-protocol"})
_KEPT_BACK_PREFIXES = ("impersonate-", "x-remote-")
_CORS = frozenset({
    "access-control-allow-credentials", "access-control-allow-headers",
    "access-control-allow-methods", "access-control-allow-origin",
})  # fmt: skip
"""Headers of answers that would open the API server to pages of other origins."""


def request_headers(http: web.BaseRequest, uri: str) -> Iterator[tuple[str, str]]:
    """Yield the headers to pass on: neither those of this connection nor credentials."""
    named = {
        name.strip().lower()
        for line in http.headers.getall("Connection", ())
        for name in line.split(",")
    }
    forwarded_for = []
    for name, value in http.headers.items():
        lower = name.lower()
        if lower == "x-forwarded-for":
            forwarded_for.append(value)
        elif not (
            lower in _HOP_BY_HOP or lower in named or lower in _KEPT_BACK or lower == "host"
            # Servers behind CGI and its like read both spellings as one name.
            or lower.replace("_", "-").startswith(_KEPT_BACK_PREFIXES)
        ):  # fmt: skip
            yield name, value
    peer = http.transport.get_extra_info("peername") if http.transport else None
    yield "X-Forwarded-For", ", ".join([*forwarded_for, *([peer[0]] if peer else ())])
    yield "X-Forwarded-Host", http.host
    yield "X-Forwarded-Proto", http.scheme
    yield "X-Forwarded-Uri", uri


def copied_headers(headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the headers of an answer that its client gets."""
    for name, value in headers.items():
        if name.lower() not in _HOP_BY_HOP | _CORS:
            yield name, value


def switching_headers(head: AnswerHead) -> tuple[tuple[str, str], ...]:
    """Return the headers of an answer that switches the protocol."""
    return tuple(
        (name, value) for name, value in head.headers.items() if name.lower() not in _HOP_BY_HOP
    )
