"""Requests drawn by Hypothesis from served OpenAPI v3: legal, nearly legal and wild ones.

    documents ──▶ Operation (path, method, parameters, bodies by media type)
                      └─▶ requests()  ──▶ bytes to send

Unlike `fuzz.py`, which knows the API's own types, this sees what a client sees: custom resources
too, and whatever a document says that the server does not do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from hypothesis import strategies as st

from tests.apiserver.fuzz import Request

Json = dict[str, Any]
Draw = st.DrawFn

PRESENT = "present"
"""The name of the objects that requests are mostly about."""

NAMESPACE = "default"

_METHODS = ("get", "put", "post", "patch", "delete")
_PROTOBUF = "application/vnd.kubernetes.protobuf"
_JSON_PATCH = "application/json-patch+json"
_DEPTH = 6
_QUERY_CHARS = 200
_REFERENCE = "#/components/schemas/"

_SHARES = {"legal": 0.0, "nearly": 0.04, "wild": 0.4}
"""How often a value is not what the schema asks for, by the kind of request."""

_TEXTS = (
    "", "a", PRESENT, "1", "-1", "100m", "1Gi", "10%", "true", "None", "Always", "TCP", "ClusterIP",
    "2026-01-01T00:00:00Z", "0000-00-00T00:00:00Z", "YQ==", "=", "a/b", "example.com/a", "..",
    "../../etc", "/", "*", "a\x00b", "\ud800", "\ufeff", "\u2028", "a" * 64, "a" * 300, "9" * 400,
    "1e400", "{}", "[", "self.a", "true || x", "'" * 9, "(" * 200, "10.0.0.0/8", "::ffff:1.2.3.4",
    "https://127.0.0.1:1/x", "http://[", "system:masters", "$(A)", "%", "a=b", "a in (b",
)  # fmt: skip
_NUMBERS = (
    0,
    1,
    2,
    -1,
    80,
    65536,
    2**31,
    2**53,
    2**63 - 1,
    2**63,
    -(2**63) - 1,
    10**40,
    0.5,
    1e308,
)
_FORMATS: Mapping[str, tuple[Any, ...]] = {
    "date-time": ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123456Z", "9999-12-31T23:59:59Z"),
    "byte": ("YQ==", "", "e30="),
    "int32": (0, 1, 2, 80, 2**31 - 1),
    "int64": (0, 1, 30, 2**63 - 1),
    "double": (0, 0.5, 1),
    "int-or-string": (1, "1", "25%", "http"),
}
_WORDS: Mapping[str, tuple[str, ...]] = {
    "name": (PRESENT, "a", "default", "kubernetes"),
    "namespace": (NAMESPACE,),
    "operator": ("In", "Exists", "Equal", "Gt"),
    "protocol": ("TCP", "UDP"),
    "type": ("ClusterIP", "Opaque", "Ready", "Utilization", "RollingUpdate", "string", "object"),
    "expression": (
        "true",
        "self.size() > 1",
        "object.metadata.name == 'a'",
        "authorizer.path('/')",
    ),
    "rule": ("self.all(x, x == x)", "has(self.spec)", "oldSelf == self"),
    "op": ("add", "remove", "replace", "copy", "move", "test"),
}
"""Values of fields by their name, where any text would be refused at once."""

_MEDIA_TYPES = (
    "application/json", "application/yaml", _PROTOBUF, _JSON_PATCH, "application/merge-patch+json",
    "application/strategic-merge-patch+json", "application/apply-patch+yaml", "text/plain",
    "application/cbor", "", "x", "application/json;charset=utf-7", "multipart/form-data",
)  # fmt: skip
_ACCEPTED = (
    "application/json", "*/*", _PROTOBUF, "application/yaml", "text/html", "image/png", ",;=",
    "application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;stream=watch",
    f"{_PROTOBUF};as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "application/cbor",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. `schemas` are those of the document; `bodies` by media type."""

    method: str
    path: str
    parameters: tuple[Json, ...]
    bodies: Mapping[str, Json]
    schemas: Mapping[str, Json]
    group_version: str
    kind: str

    @property
    def streams(self) -> bool:
        """Whether an answer may have no end."""
        return self.path.rpartition("/")[2] in ("log", "exec", "attach", "portforward", "proxy")


def operations(document: Json) -> Iterator[Operation]:
    """Yield the operations of a document."""
    schemas = document.get("components", {}).get("schemas", {})
    for path, item in document["paths"].items():
        for method in _METHODS:
            if method not in item:
                continue
            about = item[method]
            names = about.get("x-kubernetes-group-version-kind", {})
            group, version = names.get("group", ""), names.get("version", "v1")
            content = about.get("requestBody", {}).get("content", {})
            yield Operation(
                method.upper(),
                path,
                (*item.get("parameters", ()), *about.get("parameters", ())),
                {media_type: body.get("schema", {}) for media_type, body in content.items()},
                schemas,
                f"{group}/{version}" if group else version,
                names.get("kind", ""),
            )


@st.composite
def requests(draw: Draw, among: Sequence[Operation]) -> Request:
    """A request for one of the operations."""
    operation = draw(st.sampled_from(among))
    return _Drawing(draw, operation, draw(st.sampled_from(tuple(_SHARES)))).request()


class _Drawing:
    """The choices that make one request."""

    def __init__(self, draw: Draw, operation: Operation, how: str) -> None:
        self._draw = draw
        self._operation = operation
        self._how = how
        self._share = _SHARES[how]

    def request(self) -> Request:
        operation = self._operation
        path, query = operation.path, []
        for parameter in operation.parameters:
            name = parameter["name"]
            if parameter["in"] == "path":
                path = path.replace(f"{{{name}}}", quote(self._path_part(name), safe=""))
            elif self._chance(0.1):
                value = self._value(parameter["schema"], name, 0)
                query.append(f"{name}={_quoted(str(value)[:_QUERY_CHARS])}")
        target = path + ("?" + "&".join(query) if query else "")
        content_type, body = self._content()
        head = [f"{operation.method} {target} HTTP/1.1", "Host: x", f"Content-Type: {content_type}"]
        if self._chance(0.3):
            head.append(f"Accept: {self._one_of(_ACCEPTED)}")
        head.append(f"Content-Length: {len(body)}")
        streams = operation.streams or any(one.startswith(("watch=", "follow=")) for one in query)
        data = "\r\n".join(head).encode() + b"\r\n\r\n" + body
        return Request(operation.method, target, data, streams)

    # Bodies

    def _content(self) -> tuple[str, bytes]:
        bodies = self._operation.bodies
        content_type = self._one_of(tuple(bodies)) if bodies else "application/json"
        if self._is_off():
            content_type = self._one_of(_MEDIA_TYPES)
        schema = bodies.get(content_type, next(iter(bodies.values()), {}))
        if content_type == _PROTOBUF:
            return content_type, self._protobuf()
        if content_type == _JSON_PATCH:
            return content_type, _encoded(self._operations())
        if not bodies and not self._is_off():
            return content_type, b""
        body = self._anything(0) if self._how == "wild" and self._chance(0.3) else None
        if body is None:
            body = self._value(schema, "", 0)
        if isinstance(body, dict) and not self._is_off() and self._operation.method != "DELETE":
            self._name(body)
        data = _encoded(body)
        if self._is_off() and self._how == "wild":
            at = self._draw(st.integers(0, len(data)))
            data = data[:at] + self._draw(st.binary(max_size=3)) + data[at + 1 :]
        return content_type, data

    def _name(self, body: Json) -> None:
        """Give a body the type and the name that its path has."""
        if "apiVersion" not in body or "kind" not in body:
            body |= {"apiVersion": self._operation.group_version, "kind": self._operation.kind}
        metadata = body.get("metadata")
        if isinstance(metadata, dict):
            name = PRESENT if "{name}" in self._operation.path else self._one_of((PRESENT, "a"))
            body["metadata"] = {**metadata, "name": name}
            for field in ("resourceVersion", "uid", "namespace"):
                body["metadata"].pop(field, None)

    def _protobuf(self) -> bytes:
        raw = self._draw(st.binary(max_size=60))
        if self._chance(0.7):
            version, kind = self._operation.group_version.encode(), self._operation.kind.encode()
            type_meta = _field(1, version) + _field(2, kind)
            raw = _field(1, type_meta) + _field(2, raw)
        return (b"k8s\x00" if self._chance(0.9) else b"") + raw

    def _operations(self) -> Any:
        bodies = tuple(self._operation.bodies.values())
        fields = self._fields(bodies[0]) if bodies else ()
        parts = (*fields, "metadata", "labels", "spec", "0", "-", "a", "~1", "~2", "", "9" * 30)
        return [
            {
                "op": self._one_of(_WORDS["op"]) if not self._is_off() else self._anything(2),
                "path": self._pointer(parts),
                "from": self._pointer(parts),
                "value": self._anything(1),
            }
            for _ in range(self._draw(st.integers(0, 3)))
        ]

    def _pointer(self, parts: tuple[str, ...]) -> Any:
        if self._is_off():
            return self._anything(2)
        return "".join(f"/{self._one_of(parts)}" for _ in range(self._draw(st.integers(0, 4))))

    # Values

    def _fields(self, schema: Json) -> tuple[str, ...]:
        return tuple(self._resolved(schema).get("properties", ()))

    def _resolved(self, schema: Json) -> Json:
        while True:
            if "$ref" in schema:
                schema = self._operation.schemas[schema["$ref"].removeprefix(_REFERENCE)]
            elif len(schema.get("allOf", ())) == 1:
                schema = schema["allOf"][0]
            else:
                return schema

    def _value(self, schema: Json, name: str, depth: int) -> Any:
        """A value by a schema, for a field of that name."""
        if self._is_off():
            return self._anything(depth)
        schema = self._resolved(schema)
        if "enum" in schema:
            return self._one_of(tuple(schema["enum"]))
        alternatives = schema.get("oneOf") or schema.get("anyOf")
        if alternatives:
            return self._value(self._one_of(tuple(alternatives)), name, depth + 1)
        match schema.get("type"):
            case "object":
                return self._object(schema, depth)
            case "array":
                count = self._draw(st.integers(0, 2)) if depth < _DEPTH else 0
                items = schema.get("items", {})
                return [self._value(items, name, depth + 1) for _ in range(count)]
            case "boolean":
                return self._draw(st.booleans())
            case "integer" | "number":
                usual = _FORMATS.get(schema.get("format", ""), (0, 1))
                return self._one_of(usual if self._chance(0.9) else _NUMBERS)
            case "string":
                usual = _FORMATS.get(schema.get("format", "")) or _WORDS.get(name) or ("a", "1")
                return self._one_of(usual if self._chance(0.8) else _TEXTS)
        return self._anything(depth) if "properties" not in schema else self._object(schema, depth)

    def _object(self, schema: Json, depth: int) -> Json:
        share = (0.9, 0.4, 0.25, 0.2, 0.15, 0.1)[depth] if depth < _DEPTH else 0.0
        required = schema.get("required", ())
        obj = {
            name: self._value(inner, name, depth + 1)
            for name, inner in schema.get("properties", {}).items()
            if (name in required and depth < 2 * _DEPTH) or self._chance(share)
        }
        others = schema.get("additionalProperties")
        if isinstance(others, dict) and depth < _DEPTH and self._chance(0.5):
            obj[self._text()] = self._value(others, "", depth + 1)
        if self._is_off():
            obj[self._text()] = self._anything(depth)
        return obj

    def _anything(self, depth: int) -> Any:
        choice = self._draw(st.integers(0, 9 if depth < _DEPTH else 4))
        if choice < 2:
            return self._one_of((None, True, {}, []))
        if choice < 3:
            return self._one_of(_NUMBERS)
        if choice < 5:
            return self._text()
        if choice == 5:
            opened, closed = self._one_of((("[", "]"), ('{"a":', "}")))
            levels = self._one_of((3, 40, 99, 150, 5000))
            return _Raw(opened * levels + "{}" + closed * levels)
        if choice < 8:
            return [self._anything(depth + 1) for _ in range(self._draw(st.integers(0, 3)))]
        return {
            self._text(): self._anything(depth + 1) for _ in range(self._draw(st.integers(0, 3)))
        }

    def _path_part(self, name: str) -> str:
        if self._is_off():
            return str(self._one_of(tuple(text for text in _TEXTS if text.isprintable() and text)))
        return NAMESPACE if name == "namespace" else PRESENT

    def _text(self) -> str:
        return str(self._one_of(_TEXTS))

    # Choices

    def _one_of(self, values: Sequence[Any]) -> Any:
        return self._draw(st.sampled_from(values))

    def _chance(self, share: float) -> bool:
        return share > 0 and self._draw(st.integers(0, 99)) >= 100 - 100 * share

    def _is_off(self) -> bool:
        """Whether something else than what is asked for is drawn here."""
        return self._chance(self._share)


@dataclass(frozen=True, slots=True)
class _Raw:
    """JSON that is nested too deeply for an encoder."""

    text: str


def _encoded(value: Any) -> bytes:
    marks: dict[str, str] = {}

    def mark(raw: Any) -> str:
        name = f"@raw-{len(marks)}@"
        marks[json.dumps(name)] = raw.text
        return name

    text = json.dumps(value, default=mark)
    for name, raw in marks.items():
        text = text.replace(name, raw)
    return text.encode()


def _quoted(text: str) -> str:
    return quote(text, safe="", errors="surrogatepass")


def _field(number: int, raw: bytes) -> bytes:
    """A length-delimited field of up to 127 bytes."""
    return bytes([number << 3 | 2, min(len(raw), 127)]) + raw[:127]
