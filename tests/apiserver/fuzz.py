"""Hostile requests, made at random from the API's own types: the same seed makes the same ones."""

from __future__ import annotations

import base64
import gzip
import json
import string
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any
from urllib.parse import quote

from moorage.api import yaml_text
from moorage.apiserver.registry.kind import Kind, Served
from moorage.apiserver.registry.kinds import ALL_KINDS
from moorage.apiserver.registry.schema import Field, load_schema
from tests.apiserver.registry.schema.wire_encoder import encode, envelope

JSON, YAML = "application/json", "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
BODY_LIMIT = 3 * 1024 * 1024

_SCHEMA = load_schema()
_NAMESPACES = ("default", "fuzz", "kube-system", "absent")
_NAMES = ("a", "b", "c", "present")
_TEXTS = (
    "", "a", "b", "app", "v1", "Pod", "true", "1", "0", "-1", "100m", "1Gi", "1e3", "0.5", "10%",
    "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000000Z", "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00Z", "YQ==", "YQ", "a/b", "example.com/a", "a.b", "A", "_", "-a",
    "Always", "Never", "TCP", "UDP", "NoExecute", "Exists", "In", "Gt", "runc", "10.96.0.1",
    "::1", "/", "..", "../..", "/proc", "a\nb", "a\x00b", "\x7f", "\u00e9", "\u2028", "\U0001f600",
    "\ufeff", "\ud800", "\udfff", "\u0661", "a" * 64, "a" * 254, "a" * 5000, "*", "$(A)", "$patch",
    "<<", "&a", "*a", "!!int", "{}", "[]", "%", '"', "\\", "'", "k8s.io/a", "1" * 30, "1e400",
    "0" * 5000, "9" * 5000, "1" * 30 + "Ei", "system:masters", "system:node:n1",
)  # fmt: skip
_NUMBERS = (0, 1, -1, 2, 80, 65535, 65536, 2**31 - 1, 2**31, -(2**31) - 1, 2**53, 2**63 - 1, 2**63,
            -(2**63), 2**64, 10**30, 1.5, -0.0, 1e300, float("nan"), float("inf"))  # fmt: skip
_HEADERS: dict[str, tuple[bytes, ...]] = {
    "Accept": (
        b"*/*", b"application/yaml", b"application/json;as=Table;v=v1;g=meta.k8s.io",
        b"application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", b"text/html", b",;,=",
        b"application/json;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io", b"\xff",
        b"application/vnd.kubernetes.protobuf", b"a/b," * 800, b";" * 3000,
        b"application/json;as=;",
    ),
    "Accept-Encoding": (b"gzip", b"br", b"gzip;q=0", b"\xfe"),
    "User-Agent": (b"curl/8", b"\xff\xfe", b"x" * 3000, b"/", b"kubectl/v1.36", b"\xc3\xa9/1",
                   b"Mozilla/5.0"),
    "Impersonate-User": (b"alice", b"", b"\xff", b"system:serviceaccount:a", b"x" * 3000,
                         b"system:anonymous", b"system:node:n1"),
    "Impersonate-Group": (b"system:masters", b"\xe2\x80\xa8", b""),
    "Impersonate-Uid": (b"1", b"\xff"),
    "Impersonate-Extra-A%FF": (b"b", b"\xff"),
    "Impersonate-Extra-%": (b"b",),
    "Authorization": (b"Bearer x", b"Bearer ", b"Basic YTpi", b"Bearer a.b.c", b"Bearer \xff",
                      b"bearer " + b"e" * 4000, b"Bearer eyJhbGciOiJub25lIn0.e30."),
    "Connection": (b"close", b"Upgrade", b"keep-alive, Upgrade"),
    "Upgrade": (b"websocket", b"SPDY/3.1", b"h2c"),
    "Sec-WebSocket-Protocol": (b"base64url.bearer.authorization.k8s.io.\xff", b"v4.channel.k8s.io",
                               b"base64url.bearer.authorization.k8s.io.YQ"),
    "Expect": (b"100-continue", b"200-ok"),
    "Content-Encoding": (b"gzip", b"identity", b"deflate", b"br", b"x"),
    "X-Forwarded-For": (b"127.0.0.1",),
    "X-Remote-User": (b"admin",),
    "Range": (b"bytes=0-1",),
    "If-Match": (b'"1"',),
    "Cookie": (b"a=b; c" * 100,),
}  # fmt: skip
_QUERY: dict[str, tuple[str, ...]] = {
    "labelSelector": (), "fieldSelector": (),
    "limit": ("0", "1", "-1", "many", "9" * 400, "\u0661", "1_0", " 1"),
    "continue": ("a", "e30", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi8uLiJ9", "=",
                 "\u00e9", "W1tbW1tb" * 500, "eyJydiI6MTAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwfQ"),
    "resourceVersion": ("", "0", "1", "-1", "x", "9" * 400, "\u0661", "01"),
    "resourceVersionMatch": ("Exact", "NotOlderThan", "x"),
    "dryRun": ("All", "x", ""), "fieldManager": ("m", "x" * 129, "\u00e9" * 70, "a\nb", "\ud800"),
    "fieldValidation": ("Strict", "Warn", "Ignore", "x"), "force": ("true", "x"),
    "pretty": ("true", "1", ""), "timeout": ("32s", "x"), "timeoutSeconds": ("1", "-1", "x"),
    "includeObject": ("None", "Metadata", "Object", "x"), "allowWatchBookmarks": ("true",),
    "sendInitialEvents": ("true", "x"), "gracePeriodSeconds": ("0", "-1", "x", "9" * 20, "9" * 12),
    "propagationPolicy": ("Foreground", "Orphan", "Background", "x"), "orphanDependents": ("true",),
    "container": ("c", "\ud800"), "command": ("sh", "\x00"), "ports": ("80", "x", "99999"),
    "tailLines": ("1", "x"), "sinceTime": ("x",), "verbose": ("",), "exclude": ("ping", "x"),
    "\ud800": ("x",), "": ("",), "%": ("%",),
}  # fmt: skip
_PAGES = (
    "/api",
    "/apis",
    "/api/v1",
    "/apis/apps/v1",
    "/version",
    "/healthz",
    "/readyz",
    "/livez",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/api/v1",
    "/openapi/v3/apis/x",
    "/.well-known/openid-configuration",
    "/openid/v1/jwks",
    "/metrics",
    "/",
    "//",
    "/apis//",
    "/readyz/ping",
    "/api/v1/watch",
    "/api/v1/watch/pods/x/y/z",
    "/logs",
    "/debug/pprof",
)


@dataclass(frozen=True, slots=True)
class Request:
    """A request as bytes. `streams`: the answer may go on for as long as one reads."""

    method: str
    target: str
    data: bytes
    streams: bool = False
    is_large: bool = False


class Fuzz:
    """Makes requests from one seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._makers: tuple[tuple[int, Callable[[], Request]], ...] = (
            (30, self._write), (25, self._patch), (20, self._read), (8, self._review),
            (5, self._subresource), (3, self._page), (3, self._delete), (2, self._garbage),
        )  # fmt: skip

    def request(self) -> Request:
        """The next request."""
        weights = [weight for weight, _ in self._makers]
        (maker,) = self._random.choices([maker for _, maker in self._makers], weights)
        return maker()

    def large(self) -> Request:
        """A request with a body of up to the limit, made to be dear."""
        random = self._random
        content_type, body = random.choice(self._large_makers())()
        body = body[:BODY_LIMIT]
        if content_type in (JSON, YAML, PROTOBUF):
            kind, served = self._kind()
            path = self._path(kind, served)
            method = random.choice(("POST", "PUT", "DELETE"))
            path += "" if method == "POST" else f"/{random.choice(_NAMES)}"
        else:
            kind, served = self._kind(lambda kind: kind.is_stored)
            path = f"{self._path(kind, served)}/present?fieldManager=f"
            method = "PATCH"
        return self._built(method, path, body, content_type, is_large=True)

    # Requests

    def _write(self) -> Request:
        random = self._random
        kind, served = self._kind()
        name = random.choice(_NAMES)
        obj = self._object(served.type, 0)
        if random.random() < 0.8:
            obj |= {"kind": kind.name, "apiVersion": served.api_version}
        if random.random() < 0.8:
            metadata = obj.get("metadata")
            obj["metadata"] = {**(metadata if isinstance(metadata, dict) else {}), "name": name}
        content_type, body = self._written(kind, served, obj)
        path = self._path(kind, served)
        method = "POST"
        if random.random() < 0.4:
            method, path = "PUT", f"{path}/{name}"
        return self._built(method, path + self._query(), body, content_type)

    def _written(self, kind: Kind, served: Served, obj: dict[str, Any]) -> tuple[str, bytes]:
        choice = self._random.random()
        if choice < 0.5:
            return JSON, self._mutated(_json(obj))
        if choice < 0.8:
            return YAML, self._mutated(self._yaml(obj))
        try:
            raw = encode(_SCHEMA, served.type, obj)
        except (TypeError, ValueError, AttributeError, KeyError, AssertionError, OverflowError):
            raw = self._random.randbytes(self._random.randrange(200))
        body = envelope(served.api_version, kind.name, self._mutated(raw))
        return PROTOBUF, self._mutated(body)

    def _patch(self) -> Request:
        random = self._random
        kind, served = self._kind(lambda kind: kind.is_stored)
        path = f"{self._path(kind, served)}/{random.choice(_NAMES)}"
        if random.random() < 0.2:
            path += f"/{random.choice(tuple(kind.subresources) or ('status',))}"
        content_type = random.choice((JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH))
        if content_type == JSON_PATCH:
            body = _json(self._operations(served.type))
        else:
            obj = self._object(served.type, 0)
            if content_type == STRATEGIC_PATCH:
                self._add_directives(obj)
            if content_type == APPLY_PATCH:
                obj |= {"kind": kind.name, "apiVersion": served.api_version}
            is_yaml = content_type == APPLY_PATCH and random.random() < 0.5
            body = self._yaml(obj) if is_yaml else _json(obj)
        query = self._query()
        if content_type == APPLY_PATCH and "fieldManager" not in query:
            query += ("&" if query else "?") + "fieldManager=f"
        return self._built("PATCH", path + query, self._mutated(body), content_type)

    def _read(self) -> Request:
        random = self._random
        kind, served = self._kind(lambda kind: kind.is_stored)
        path = self._path(kind, served)
        if random.random() < 0.3:
            path += f"/{random.choice((*_NAMES, self._text()))}"
        query = self._query()
        streams = random.random() < 0.1
        if streams:
            query += ("&" if query else "?") + "watch=1"
        return self._built("GET", path + query, streams=streams or "watch" in path)

    def _review(self) -> Request:
        kind, served = self._kind(lambda kind: not kind.is_stored)
        obj = self._object(served.type, 0)
        obj |= {"kind": kind.name, "apiVersion": served.api_version}
        content_type, body = self._written(kind, served, obj)
        return self._built("POST", self._path(kind, served), body, content_type)

    def _subresource(self) -> Request:
        random = self._random
        kind, served = self._kind(lambda kind: bool(kind.subresources))
        subresource = random.choice(tuple(kind.subresources))
        path = f"{self._path(kind, served)}/{random.choice(_NAMES)}/{subresource}"
        type_name = random.choice((
            served.type, "io.k8s.api.core.v1.Binding", "io.k8s.api.policy.v1.Eviction",
            "io.k8s.api.autoscaling.v1.Scale", "io.k8s.api.authentication.v1.TokenRequest",
        ))  # fmt: skip
        body = self._mutated(_json(self._object(type_name, 0)))
        method = random.choice(("GET", "POST", "PUT", "PATCH", "DELETE"))
        content_type = random.choice((JSON, MERGE_PATCH, STRATEGIC_PATCH))
        streams = subresource in ("log", "exec", "attach", "portforward")
        return self._built(method, path + self._query(), body, content_type, streams=streams)

    def _page(self) -> Request:
        method = self._random.choice(("GET", "GET", "HEAD", "OPTIONS", "POST", "TRACE", "CONNECT"))
        return self._built(method, self._random.choice(_PAGES) + self._query())

    def _delete(self) -> Request:
        random = self._random
        kind, served = self._kind(lambda kind: kind.is_stored)
        path = self._path(kind, served)
        path += f"/{random.choice(_NAMES)}" if random.random() < 0.7 else ""
        body = b""
        if random.random() < 0.5:
            body = self._mutated(
                _json(self._object("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions", 0))
            )
        return self._built("DELETE", path + self._query(), body)

    def _garbage(self) -> Request:
        """What is hardly HTTP."""
        random = self._random
        request = self._write()
        data = bytearray(request.data[:2000])
        for _ in range(random.randrange(1, 20)):
            data[random.randrange(len(data))] = random.randrange(256)
        return Request("GARBAGE", "", bytes(data) + b"\r\n\r\n", streams=True)

    def _built(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        content_type: str = JSON,
        *,
        streams: bool = False,
        is_large: bool = False,
    ) -> Request:
        random = self._random
        if random.random() < 0.03:
            content_type = random.choice((JSON, YAML, PROTOBUF, JSON_PATCH, "x", "", "a/b;c=d",
                                          "application/json; charset=latin-1"))  # fmt: skip
        line = target.encode("utf-8", "surrogatepass")
        if random.random() < 0.02:
            line += random.choice((b"\xff", b"%FF", b"%00", b"%", b"%ED%A0%80", b"#", b"?", b"//"))
        headers = [b"Host: fuzz", b"Content-Type: " + content_type.encode()]
        for _ in range(random.choice((0, 0, 0, 1, 1, 2))):
            name = random.choice(tuple(_HEADERS))
            if name == "Content-Encoding" and random.random() < 0.5:
                body = gzip.compress(body)[: random.choice((10, None))]
            headers.append(name.encode() + b": " + random.choice(_HEADERS[name]))
        if random.random() < 0.1:
            headers.append(b"Transfer-Encoding: chunked")
            body = self._chunked(body)
        else:
            headers.append(b"Content-Length: %d" % len(body))
        streams = streams or any(header.startswith((b"Upgrade", b"Expect")) for header in headers)
        head = method.encode() + b" " + line + b" HTTP/1.1\r\n" + b"\r\n".join(headers)
        return Request(method, target[:200], head + b"\r\n\r\n" + body, streams, is_large)

    def _chunked(self, body: bytes) -> bytes:
        size = self._random.choice((1, 7, 1000, 100_000)) if len(body) < 10_000 else 100_000
        pieces = [body[at : at + size] for at in range(0, len(body), size)]
        return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"

    # Parts of requests

    def _kind(self, fits: Callable[[Kind], bool] = lambda _: True) -> tuple[Kind, Served]:
        kind = self._random.choice([kind for kind in ALL_KINDS if fits(kind)])
        return kind, self._random.choice(kind.served)

    def _path(self, kind: Kind, served: Served) -> str:
        random = self._random
        root = (
            f"/apis/{served.group}/{served.version}" if served.group else f"/api/{served.version}"
        )
        if random.random() < 0.02:
            root += "/watch"
        if kind.is_namespaced:
            namespace = random.choice(_NAMESPACES) if random.random() < 0.95 else self._text()
            root += f"/namespaces/{quote(namespace, safe='', errors='surrogatepass')}"
        return f"{root}/{kind.plural}"

    def _query(self) -> str:
        random = self._random
        parts = []
        for _ in range(random.choice((0, 0, 1, 1, 2, 4))):
            name = random.choice(tuple(_QUERY))
            value = self._selector() if name.endswith("Selector") else random.choice(_QUERY[name])
            if random.random() < 0.1:
                value = self._text()
            parts.append(f"{_quoted(name)}={_quoted(value)}")
        return "?" + "&".join(parts) if parts else ""

    def _selector(self) -> str:
        random = self._random
        tokens = ("a", "b", "=", "==", "!=", "!", " in ", " notin ", "(", ")", ",", ">", "<", "1",
                  "metadata.name", "status.phase", "spec.nodeName", "metadata.namespace", "\\", " ",
                  "\u00e9", "x.y/z", "_", '"', "a" * 64, "\ud800", "\x00")  # fmt: skip
        count = random.choice((1, 3, 5, 9, 30, 400))
        return "".join(random.choice(tokens) for _ in range(count))[:5000]

    def _text(self) -> str:
        random = self._random
        if random.random() < 0.9:
            return random.choice(_TEXTS)
        return "".join(random.choices(string.printable + "\x00\u00e9\ud800\U0001f600", k=8))

    def _object(self, type_name: str, depth: int) -> dict[str, Any]:
        random = self._random
        fields = _SCHEMA[type_name].fields
        share = random.choice((0.1, 0.3, 0.6)) if depth < 3 else 0.12
        obj = {
            field.name: self._field(field, depth)
            for field in fields
            if random.random() < share or (field.is_required and random.random() < 0.8)
        }
        if random.random() < 0.04:
            obj[self._text()] = self._anything(0)
        return obj

    def _field(self, field: Field, depth: int) -> Any:
        random = self._random
        if random.random() < 0.03:
            return self._anything(0)
        if field.container == "list":
            count = random.choice((0, 1, 1, 2, 3)) if depth < 6 else 0
            return [self._one(field, depth) for _ in range(count)]
        if field.container == "map":
            count = random.choice((0, 1, 2)) if depth < 6 else 0
            return {self._text(): self._one(field, depth) for _ in range(count)}
        return self._one(field, depth)

    def _one(self, field: Field, depth: int) -> Any:
        random = self._random
        if random.random() < 0.02:
            return None
        match field.kind:
            case "object":
                return self._object(field.type, depth + 1) if depth < 9 else {}
            case "int32" | "int64" | "double":
                return random.choice(_NUMBERS[:9] if random.random() < 0.9 else _NUMBERS)
            case "bool":
                return random.random() < 0.5
            case "bytes":
                return base64.b64encode(random.randbytes(5)).decode()
            case "quantity" | "intOrString":
                return random.choice((1, "1", "100m", "1Gi", "10%", "http", 0, -1, 2**40))
            case "time" | "microTime":
                return "2026-01-01T00:00:00Z" if random.random() < 0.7 else self._text()
            case "any":
                return self._fields_v1(0) if random.random() < 0.7 else self._anything(0)
            case "strings":
                return [self._text() for _ in range(random.randrange(3))]
            case _:
                return self._text()

    def _fields_v1(self, depth: int) -> Any:
        random = self._random
        elements = (".", "f:spec", "f:data", "f:metadata", "f:a", 'k:{"name":"a"}', 'v:"a"', "i:0",
                    "k:", "v:", "x", "f:", 'k:{"a":', "k:[]", "f:labels")  # fmt: skip
        if depth > 4 or random.random() < 0.2:
            return {} if random.random() < 0.9 else self._anything(0)
        return {random.choice(elements): self._fields_v1(depth + 1) for _ in range(3)}

    def _anything(self, depth: int) -> Any:
        random = self._random
        choice = random.randrange(8 if depth < 4 else 4)
        if choice < 2:
            return self._text()
        if choice == 2:
            return random.choice(_NUMBERS)
        if choice == 3:
            return random.choice((None, True, False))
        if choice < 6:
            return [self._anything(depth + 1) for _ in range(random.randrange(3))]
        return {self._text(): self._anything(depth + 1) for _ in range(random.randrange(3))}

    def _operations(self, type_name: str) -> Any:
        random = self._random
        tops = [field.name for field in _SCHEMA[type_name].fields]
        parts = (*tops, "metadata", "name", "labels", "spec", "containers", "0", "-", "-1", "a",
                 "~0", "~1", "~", "~2", "", "annotations", "9" * 30, "01", "\u0661")  # fmt: skip

        def path() -> str:
            count = random.choice((0, 1, 2, 2, 3, 5, 200))
            return "".join(f"/{random.choice(parts)}" for _ in range(count))

        operations: list[Any] = []
        for _ in range(random.choice((0, 1, 2, 3, 10))):
            operation: Any = {
                "op": random.choice(("add", "remove", "replace", "move", "copy", "test", "x", 1)),
                "path": path(), "from": path(), "value": self._anything(0),
            }  # fmt: skip
            if random.random() < 0.1:
                operation.pop(random.choice(tuple(operation)))
            if random.random() < 0.05:
                operation = self._anything(0)
            operations.append(operation)
        return operations if random.random() < 0.95 else self._anything(0)

    def _add_directives(self, node: Any) -> None:
        random = self._random
        if isinstance(node, list):
            for item in node:
                self._add_directives(item)
            if random.random() < 0.1:
                node.append({"$patch": random.choice(("replace", "delete", "merge", "x", 1))})
        elif isinstance(node, dict):
            for key, value in list(node.items()):
                self._add_directives(value)
                if random.random() < 0.08:
                    prefix = random.choice(("$setElementOrder/", "$deleteFromPrimitiveList/"))
                    node[prefix + key] = value if random.random() < 0.6 else self._anything(0)
            if random.random() < 0.08:
                node["$patch"] = random.choice(("replace", "delete", "merge", "x", None, {}, []))
            if random.random() < 0.05:
                node["$retainKeys"] = random.choice(([], list(node), self._anything(0)))

    def _yaml(self, obj: Any) -> bytes:
        random = self._random
        try:
            text = yaml_text.dump(obj)
        except (UnicodeEncodeError, OverflowError):
            text = json.dumps(obj)
        if random.random() < 0.4:
            lines = text.splitlines()
            extras = (
                "&a",
                "*a",
                "<<: *a",
                "? [x]",
                "? {a: b}",
                "- - - -",
                "a: &a [*a]",
                "!!binary",
                "!!python/object:x",
                "!<x> y",
                "%TAG ! x",
                "---",
                "...",
                "|",
                ">-",
                "\t",
                "{",
                "[",
                "&b {<<: [*a, *a]}",
                "~: x",
                "0o7: 1",
                ".inf: .nan",
                "'",
                '"',
                "@",
                "`",
            )
            for _ in range(random.randrange(1, 4)):
                at = random.randrange(len(lines) + 1)
                lines.insert(at, " " * random.randrange(6) + random.choice(extras))
            text = "\n".join(lines)
        return text.encode("utf-8", "surrogatepass")

    def _mutated(self, body: bytes) -> bytes:
        random = self._random
        if random.random() < 0.75:
            return body
        data = bytearray(body)
        for _ in range(random.choice((1, 1, 3))):
            at = random.randrange(len(data) + 1)
            match random.randrange(8):
                case 0:
                    data[at : at + random.randrange(1, 9)] = b""
                case 1:
                    data[at:at] = random.choice((b"\xff", b"\x00", b"\xed\xa0\x80", b"\\ud800"))
                case 2:
                    data[at:at] = data[max(at - 40, 0) : at]
                case 3:
                    data[at:at] = random.choice((b"[", b"{", b'{"a":', b"- ")) * 2000
                case 4:
                    data[at:at] = random.choice((b"1" * 5000, b"1e999", b"NaN", b"-Infinity"))
                case 5:
                    del data[at:]
                case 6:
                    data[at : at + 1] = bytes([random.randrange(256)])
                case _:
                    data[at:at] = b'"a":1,"a":2,'
        return bytes(data)

    # Large bodies

    def _large_makers(self) -> tuple[Callable[[], tuple[str, bytes]], ...]:
        return (
            self._repeated_json, self._repeated_yaml, self._repeated_protobuf, self._yaml_bomb,
            self._many_items, self._many_items, self._many_items, self._many_operations,
            self._many_changes, self._many_changes,
        )  # fmt: skip

    def _repeated_json(self) -> tuple[str, bytes]:
        piece = self._random.choice((
            b"{},", b"[],", b"0,", b'"",', b'{"a":', b"[", b'{"name":""},', b'{"a":1,"a":1},',
            b"null,", b'"\\u0000",', b"1e5,", b" ",
        ))  # fmt: skip
        lead = self._random.choice((
            b'{"spec":{"containers":[', b'{"metadata":{"ownerReferences":[', b'{"x":[', b"[",
            b'{"metadata":{"managedFields":[{"fieldsV1":', b'{"data":{"a":[', b"",
        ))  # fmt: skip
        return JSON, lead + piece * (BODY_LIMIT // len(piece) - 100)

    def _repeated_yaml(self) -> tuple[str, bytes]:
        piece = self._random.choice((
            b"- \n", b"- - ", b"[", b"{a: ", b"[],", b"a: 1\n", b"? a\n", b"&a b\n", b"#\n",
            b"%TAG ! a\n", b"---\n", b"- {}\n", b"  x\n", b'"\\n"', b"- |\n  a\n", b"- &a *a\n",
        ))  # fmt: skip
        return self._random.choice((YAML, APPLY_PATCH)), piece * (BODY_LIMIT // len(piece))

    def _repeated_protobuf(self) -> tuple[str, bytes]:
        random = self._random
        number = random.randrange(1, 40)
        piece = random.choice((
            bytes([number << 3 & 0x7F | 2, 0]), bytes([number << 3 & 0x7F, 1]),
            bytes([number << 3 & 0x7F | 2, 2, 10, 0]), b"\x12\x00", b"\x0a\x02\x0a\x00", b"\x80",
        ))  # fmt: skip
        raw = piece * ((BODY_LIMIT - 100) // len(piece))
        for _ in range(random.randrange(4)):
            raw = _delimited(random.randrange(1, 4), raw)
        return PROTOBUF, envelope("v1", random.choice(("Pod", "Node", "ConfigMap")), raw)

    def _yaml_bomb(self) -> tuple[str, bytes]:
        random = self._random
        width, levels = random.randrange(2, 12), random.randrange(3, 30)
        form = random.choice(("[%s]", "{<<: [%s]}", "{a: [%s]}", "{<<: [%s], z: 1}"))
        lines, before = ["a0: &a0 {k: 1, l: [1, 2]}"], "a0"
        for level in range(1, levels):
            lines.append(f"a{level}: &a{level} " + form % ",".join([f"*{before}"] * width))
            before = f"a{level}"
        return YAML, "\n".join(lines).encode()

    def _many_items(self) -> tuple[str, bytes]:
        """One list of a known type with as many items as fit."""
        random = self._random
        paths = [path for path in _lists() if random.random() < 0.3] or list(_lists())
        type_name, names, item_type = random.choice(paths)
        items = [self._object(item_type, 7) for _ in range(20)]
        piece = ",".join(json.dumps(item) for item in items) + ","
        count = random.choice((BODY_LIMIT, 1_000_000, 200_000)) // len(piece) - 1
        body = "".join(f'{{"{name}":' for name in names)
        text = body + "[" + piece * max(count, 1) + json.dumps(items[0]) + "]" + "}" * len(names)
        kind = next(
            kind for kind in ALL_KINDS for served in kind.served if served.type == type_name
        )
        named = f'{{"metadata":{{"name":"{random.choice(_NAMES)}"}},"kind":"{kind.name}",'
        return JSON, (named + text[1:]).encode("utf-8", "replace")

    def _many_changes(self) -> tuple[str, bytes]:
        content_type, body = self._many_items()
        del content_type
        return self._random.choice((MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)), body

    def _many_operations(self) -> tuple[str, bytes]:
        random = self._random
        operation = random.choice((
            {"op": "add", "path": "/metadata/finalizers/0", "value": "a.b/c"},
            {"op": "copy", "from": "/metadata", "path": "/metadata/annotations"},
            {"op": "copy", "from": "", "path": "/data"},
            {"op": "move", "from": "/metadata/labels", "path": "/metadata/annotations"},
            {"op": "test", "path": "/metadata/name", "value": "present"},
            {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
        ))  # fmt: skip
        first: list[Any] = [
            {"op": "add", "path": "/metadata/finalizers", "value": []},
            {"op": "add", "path": "/data", "value": {"k": [[]] * random.choice((1, 200_000))}},
        ]
        count = random.choice((100, 9_990, 20_000))
        return JSON_PATCH, _json(first[: random.randrange(3)] + [operation] * count)


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _quoted(text: str) -> str:
    return quote(text, safe="", errors="surrogatepass")


def _delimited(number: int, raw: bytes) -> bytes:
    size, length = len(raw), b""
    while size > 0x7F:
        length += bytes([size & 0x7F | 0x80])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + raw


_FOUND: list[tuple[str, tuple[str, ...], str]] = []


def _lists() -> list[tuple[str, tuple[str, ...], str]]:
    """(kind's type, path of field names, item's type) of the lists of objects near the top."""
    if not _FOUND:
        for kind in ALL_KINDS:
            for served in kind.served:
                _collect(served.type, served.type, (), 0)
    return _FOUND


def _collect(root: str, type_name: str, path: tuple[str, ...], depth: int) -> None:
    for field in _SCHEMA[type_name].fields:
        if field.kind != "object":
            continue
        here = (*path, field.name)
        if field.container == "list":
            _FOUND.append((root, here, field.type))
        elif not field.container and depth < 4:
            _collect(root, field.type, here, depth + 1)
