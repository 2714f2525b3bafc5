from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.apiserver.endpoints.routing import is_stream, parse_path, verb_of

PATHS = [
    ("GET", "/api/v1/pods", {}, "list", "", "v1", "pods", "", "", ""),
    ("GET", "/api/v1/pods", {"watch": "1"}, "watch", "", "v1", "pods", "", "", ""),
    ("GET", "/api/v1/pods", {"watch": ""}, "watch", "", "v1", "pods", "", "", ""),
    ("GET", "/api/v1/pods", {"watch": "false"}, "list", "", "v1", "pods", "", "", ""),
    ("GET", "/api/v1/namespaces/a/pods/b", {"watch": "1"}, "get", "", "v1", "pods", "a", "b", ""),
    ("GET", "/api/v1/watch/pods", {}, "watch", "", "v1", "pods", "", "", ""),
    ("GET", "/api/v1/watch/namespaces/a/pods/b", {}, "watch", "", "v1", "pods", "a", "b", ""),
    ("GET", "/api/v1/namespaces", {}, "list", "", "v1", "namespaces", "", "", ""),
    ("GET", "/api/v1/namespaces/a", {}, "get", "", "v1", "namespaces", "a", "a", ""),
    ("PUT", "/api/v1/namespaces/a/finalize", {}, "update", "", "v1", "namespaces", "a", "a",
     "finalize"),
    ("POST", "/api/v1/namespaces/a/pods", {}, "create", "", "v1", "pods", "a", "", ""),
    ("POST", "/api/v1/namespaces/a/pods/b/binding", {}, "create", "", "v1", "pods", "a", "b",
     "binding"),
    ("DELETE", "/api/v1/namespaces/a/pods", {}, "deletecollection", "", "v1", "pods", "a", "", ""),
    ("DELETE", "/api/v1/nodes/n", {}, "delete", "", "v1", "nodes", "", "n", ""),
    ("PATCH", "/apis/apps/v1/namespaces/a/deployments/d/scale", {}, "patch", "apps", "v1",
     "deployments", "a", "d", "scale"),
    ("GET", "/apis/node.k8s.io/v1/runtimeclasses/x/", {}, "get", "node.k8s.io", "v1",
     "runtimeclasses", "", "x", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "query", "verb", "group", "version", "resource", "namespace", "name", "sub"),
    PATHS,
)
def test_paths_name_resources(
    method: str,
    path: str,
    query: dict[str, str],
    verb: str,
    group: str,
    version: str,
    resource: str,
    namespace: str,
    name: str,
    sub: str,
) -> None:
    target = parse_path(path)
    assert verb_of(method, target, query) == verb
    assert (target.group, target.version, target.resource) == (group, version, resource)
    assert (target.namespace, target.name, target.subresource) == (namespace, name, sub)


@pytest.mark.parametrize(
    "path", ["/", "/api", "/api/v1", "/apis/apps/v1", "/healthz", "/openapi/v3"]
)
def test_other_paths_are_no_resources(path: str) -> None:
    target = parse_path(path)
    assert not target.is_resource
    assert verb_of("GET", target, {}) == "get"


@given(st.text(alphabet="/abc.v1%-", max_size=60))
def test_any_path_is_parsed(path: str) -> None:
    assert parse_path(path).path == path


@pytest.mark.parametrize(
    ("verb", "subresource", "expected"),
    [
        ("watch", "", True),
        ("get", "log", True),
        ("get", "exec", True),
        ("create", "attach", True),
        ("create", "portforward", True),
        ("get", "", False),
        ("list", "", False),
        ("get", "status", False),
        ("create", "binding", False),
    ],
)
def test_streams(verb: str, subresource: str, expected: bool) -> None:
    assert is_stream(verb, subresource) is expected
