"""What the body of an apply may state."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from moorage.api.errors import BadRequestError, StatusError
from moorage.apiserver.endpoints.patching import Patcher
from moorage.apiserver.registry.codec import Codec
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds import STORED_KINDS
from moorage.apiserver.registry.schema import load_schema

KINDS = {kind.name: kind for kind in STORED_KINDS}
_NOTHING: Any = None
PATCHER = Patcher(Codec(load_schema()), _NOTHING, _NOTHING, _NOTHING)


def config(body: Any, kind: str = "ConfigMap") -> Obj:
    served = KINDS[kind].storage
    namespace = "ns" if KINDS[kind].is_namespaced else ""
    call: Any = SimpleNamespace(
        kind=KINDS[kind], served=served, namespace=namespace, target=SimpleNamespace(name="a")
    )
    call.body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return PATCHER._config(call)


MAP = {"kind": "ConfigMap", "apiVersion": "v1"}


@pytest.mark.parametrize(
    "metadata", [None, {}, {"name": "a"}, {"namespace": "ns"}, {"managedFields": []}]
)
def test_the_path_fills_in_what_a_body_leaves_out(metadata: Any) -> None:
    body = {**MAP, "data": {"k": "v"}}
    if metadata is not None:
        body["metadata"] = metadata
    configuration = config(body)
    assert configuration["metadata"]["name"] == "a"
    assert configuration["metadata"]["namespace"] == "ns"
    assert configuration["data"] == {"k": "v"}
    assert not {"kind", "apiVersion"} & set(configuration)


def test_a_cluster_wide_object_gets_no_namespace_and_no_defaults() -> None:
    body = {"kind": "RuntimeClass", "apiVersion": "node.k8s.io/v1", "handler": "h"}
    assert config(body, "RuntimeClass") == {"metadata": {"name": "a"}, "handler": "h"}
    pod = {"kind": "Pod", "apiVersion": "v1", "spec": {"containers": [{"name": "c"}]}}
    assert config(pod, "Pod")["spec"] == {"containers": [{"name": "c"}]}


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        (b"a: [", BadRequestError, "error decoding YAML: yaml: "),
        (b"kind: ConfigMap\nkind: ConfigMap\n", StatusError, "error decoding YAML: "),
        (b"- a", BadRequestError, "error decoding YAML: not an object"),
        ({**MAP, "kind": "Pod"}, BadRequestError, "invalid object type: /v1, Kind=Pod"),
        ({**MAP, "apiVersion": "v2"}, BadRequestError,
         "invalid object type: /v2, Kind=ConfigMap"),
        ({"metadata": {}}, BadRequestError, "invalid object type: /None, Kind=None"),
        ({**MAP, "metadata": []}, BadRequestError,
         "error decoding YAML: metadata is not an object"),
        ({**MAP, "metadata": {"managedFields": [{}]}}, BadRequestError,
         "metadata.managedFields must be nil"),
        ({**MAP, "metadata": {"name": "b"}}, BadRequestError,
         "the name of the object (b) does not match the name on the URL (a)"),
        ({**MAP, "data": 3}, StatusError,
         "failed to create typed patch object (/a; /v1, Kind=ConfigMap): json: cannot unmarshal"),
        ({**MAP, "odd": 3}, StatusError, "failed to create typed patch object (/a; /v1, "
         "Kind=ConfigMap): .odd: field not declared in schema"),
        ({**MAP, "metadata": {"odd": 3}}, StatusError, "failed to create typed patch object (/a; "
         "/v1, Kind=ConfigMap): .metadata.odd: field not declared in schema"),
    ],
)  # fmt: skip
def test_what_an_apply_may_not_state(body: Any, error: type[StatusError], message: str) -> None:
    with pytest.raises(error) as caught:
        config(body)
    assert caught.value.message.startswith(message)
