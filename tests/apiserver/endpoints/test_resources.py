"""Names in bodies and the answer to a deletion, without a server."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from moorage.api.errors import BadRequestError
from moorage.apiserver.endpoints.resources import check_name, deletion_status
from moorage.apiserver.registry.kinds import STORED_KINDS
from moorage.apiserver.registry.stored import Stored, StoredFactory, to_value

_KINDS = {kind.name: kind for kind in STORED_KINDS}


def test_the_name_in_a_body_is_that_of_the_path() -> None:
    check_name({"metadata": {"name": "a"}}, "a")
    for metadata, message in (
        ({}, "the name of the object (a based on URL) was undeterminable: name must be provided"),
        ({"name": "b"}, "the name of the object (b) does not match the name on the URL (a)"),
    ):
        with pytest.raises(BadRequestError) as caught:
            check_name({"metadata": metadata}, "a")
        assert caught.value.message == message


@pytest.mark.parametrize(
    ("kind", "meta", "details"),
    [
        ("ConfigMap", {"name": "a", "uid": "u"}, {"name": "a", "kind": "configmaps", "uid": "u"}),
        ("RuntimeClass", {"name": "a"},
         {"name": "a", "group": "node.k8s.io", "kind": "runtimeclasses"}),
    ],
)  # fmt: skip
def test_a_deletion_that_is_done_is_a_status(
    kind: str, meta: dict[str, str], details: dict[str, str]
) -> None:
    call: Any = SimpleNamespace(kind=_KINDS[kind])
    item: Stored = StoredFactory(STORED_KINDS)(
        _KINDS[kind].key("ns", "a"), 5, to_value({"metadata": meta})
    )
    body = deletion_status(call, item)
    assert body.endswith(b"}\n")
    assert json.loads(body) == {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": details,
    }  # fmt: skip
