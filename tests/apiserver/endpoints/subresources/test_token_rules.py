"""What a token request may ask for, and what a token may be bound to."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from moorage.api.errors import BadRequestError, ConflictError, InvalidError, NotFoundError
from moorage.apiserver.authentication.service_accounts import BoundObject, TokenSigner
from moorage.apiserver.endpoints.subresources.tokens import (
    TokenSubresource,
    check_account_uid,
    check_place,
    completed_spec,
)
from moorage.apiserver.registry.kind import Kind, Obj
from moorage.apiserver.registry.kinds import STORED_KINDS
from moorage.apiserver.registry.stored import Stored, StoredFactory, to_value
from tests.clocks import FakeClock

SIGNER = TokenSigner(
    ec.generate_private_key(ec.SECP256R1()), "https://issuer", ["a", "b"], FakeClock()
)
KINDS = {kind.name: kind for kind in STORED_KINDS if kind.name in ("Pod", "Secret", "Node")}


class Shelf:
    """Objects to be found by kind, namespace and name."""

    def __init__(self, **objects: Obj) -> None:
        factory = StoredFactory(STORED_KINDS)
        self._items: dict[str, Stored] = {}
        for place, obj in objects.items():
            kind, namespace, name = place.split("__")
            meta = {"name": name, "uid": f"uid-{name}"}
            key = KINDS[kind].key(namespace, name)
            self._items[key] = factory(key, 1, to_value({"metadata": meta, **obj}))

    def find(self, kind: Kind, namespace: str, name: str) -> Stored | None:
        return self._items.get(kind.key(namespace, name))


SHELF = Shelf(
    Pod__ns__free={"spec": {"serviceAccountName": "sa"}},
    Pod__ns__placed={"spec": {"serviceAccountName": "sa", "nodeName": "n1"}},
    Pod__ns__lost={"spec": {"serviceAccountName": "sa", "nodeName": "gone"}},
    Pod__ns__other={"spec": {"serviceAccountName": "x"}},
    Secret__ns__s={},
    Node____n1={},
)


def bound(**reference: str) -> list[BoundObject]:
    nothing: Any = None
    shelf: Any = SHELF
    tokens = TokenSubresource(nothing, shelf, nothing, nothing, KINDS)
    return tokens.bound_objects(reference or None, "sa", "ns")


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("Pod", "free", [BoundObject("pod", "free", "uid-free")]),
        ("Pod", "placed",
         [BoundObject("pod", "placed", "uid-placed"), BoundObject("node", "n1", "uid-n1")]),
        ("Pod", "lost", [BoundObject("pod", "lost", "uid-lost"), BoundObject("node", "gone", "")]),
        ("Secret", "s", [BoundObject("secret", "s", "uid-s")]),
        ("Node", "n1", [BoundObject("node", "n1", "uid-n1")]),
    ],
)  # fmt: skip
def test_what_a_token_is_bound_to(kind: str, name: str, expected: list[BoundObject]) -> None:
    assert bound(kind=kind, name=name) == expected
    assert bound(kind=kind, name=name, apiVersion="v1", uid=f"uid-{name}") == expected
    assert bound() == []


@pytest.mark.parametrize(
    ("reference", "error", "message"),
    [
        ({"kind": "ConfigMap", "name": "a", "apiVersion": "v1"}, BadRequestError,
         "cannot bind token to object of type v1, Kind=ConfigMap"),
        ({"name": "a"}, BadRequestError, "cannot bind token to object of type , Kind="),
        ({"kind": "Pod", "name": "free", "apiVersion": "v2"}, BadRequestError,
         "cannot bind token to object of type v2, Kind=Pod"),
        ({"kind": "Pod", "name": "none"}, NotFoundError, 'pods "none" not found'),
        ({"kind": "Pod", "name": "other"}, BadRequestError,
         'cannot bind token for serviceaccount "sa" to pod running with different serviceaccount '
         "name."),
        ({"kind": "Secret", "name": "s", "uid": "x"}, ConflictError,
         'Operation cannot be fulfilled on Secret "s": the UID in the bound object reference (x) '
         "does not match the UID in record. The object might have been deleted and then "
         "recreated"),
    ],
)  # fmt: skip
def test_what_a_token_may_not_be_bound_to(
    reference: dict[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        bound(**reference)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("wanted", "spec"),
    [
        ({}, {"audiences": ["a", "b"], "expirationSeconds": 3600}),
        ({"audiences": []}, {"audiences": ["a", "b"], "expirationSeconds": 3600}),
        ({"audiences": ["x"], "expirationSeconds": 600},
         {"audiences": ["x"], "expirationSeconds": 600}),
        ({"expirationSeconds": 2**32, "boundObjectRef": {}},
         {"audiences": ["a", "b"], "expirationSeconds": 2**32, "boundObjectRef": {}}),
    ],
)  # fmt: skip
def test_a_request_is_completed(wanted: Obj, spec: Obj) -> None:
    assert completed_spec({"spec": wanted}, SIGNER) == spec


@pytest.mark.parametrize(
    ("seconds", "why"),
    [
        (599, "may not specify a duration less than 10 minutes"),
        (2**32 + 1, "may not specify a duration larger than 2^32 seconds"),
    ],
)
def test_a_token_lasts_so_long(seconds: int, why: str) -> None:
    with pytest.raises(InvalidError) as caught:
        completed_spec({"spec": {"expirationSeconds": seconds}}, SIGNER)
    assert caught.value.message == (
        'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: '
        f"{seconds}: {why}"
    )


def test_the_body_names_the_account_of_the_path_or_none() -> None:
    for meta in ({}, {"name": "sa"}, {"namespace": "ns"}, {"name": "sa", "namespace": "ns"}):
        check_place(meta, "sa", "ns")
    for field, value in (("name", "x"), ("namespace", "x")):
        with pytest.raises(InvalidError) as caught:
            check_place({field: value}, "sa", "ns")
        assert caught.value.message == (
            f'TokenRequest.authentication.k8s.io "sa" is invalid: metadata.{field}: Invalid value: '
            f'"x": must match the service account {field} if specified'
        )


def test_the_body_means_the_account_that_there_is() -> None:
    account = {"metadata": {"name": "sa", "uid": "now"}}
    for meta in ({}, {"uid": "now"}):
        check_account_uid(meta, account)
    with pytest.raises(ConflictError) as caught:
        check_account_uid({"uid": "before"}, account)
    assert caught.value.message == (
        'Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "sa": the UID in the '
        "token request (before) does not match the UID of the service account (now)"
    )
