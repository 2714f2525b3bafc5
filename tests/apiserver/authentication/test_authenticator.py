"""Which of a request's credentials counts, and for whom."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from multidict import CIMultiDict, CIMultiDictProxy

from moorage.api.configuration import Secret
from moorage.api.errors import BadRequestError, ForbiddenError, UnauthorizedError
from moorage.apiserver.authentication import Authenticator
from moorage.apiserver.authentication.authenticator import (
    BootstrapTokens,
    StaticToken,
    websocket_token,
)
from moorage.apiserver.authentication.certificates import user_of_certificate
from moorage.apiserver.authentication.impersonation import impersonated
from moorage.apiserver.registry.rbac import Action
from moorage.apiserver.registry.request import User
from moorage.cluster.access.identities import Authority, Subject
from tests.api.test_bootstrap_tokens import TOKEN, secret
from tests.apiserver.authentication.test_tokens import Tokens


def der(directory: Path, subject: Subject) -> bytes:
    pair = Authority(directory, datetime.now(UTC)).issue("leaf", subject)
    certificate = x509.load_pem_x509_certificate(pair.certificate.read_bytes())
    return certificate.public_bytes(Encoding.DER)


class Door:
    """An authenticator and what it knows."""

    def __init__(self, *, allows_anonymous: bool = False, **more: Any) -> None:
        self.tokens = Tokens()
        self.secrets: dict[str, Secret] = {}
        self.authenticator = Authenticator(
            static_tokens=(StaticToken("s3cret", "alice", ("dev",), "1"),),
            verifier=self.tokens.verifier,
            bootstrap_tokens=BootstrapTokens(self.secrets.get, self.tokens.clock),
            allows_anonymous=allows_anonymous,
            clock=self.tokens.clock,
            **more,
        )

    def user(self, authorization: str = "", certificate: bytes | None = None) -> User:
        headers = {"Authorization": authorization} if authorization else {}
        return self.authenticator.authenticate(headers, certificate)


@pytest.fixture
def door() -> Door:
    return Door()


def test_static_token_authenticates_its_user(door: Door) -> None:
    user = User("alice", "1", ("dev", "system:authenticated"))
    assert door.user("Bearer s3cret") == user
    assert door.user("bearer  s3cret ") == user


@pytest.mark.parametrize("token", ["s3cre", "s3cret2", "S3CRET", "x.y.z", "é", "\udcff"])
def test_a_wrong_token_is_a_401(door: Door, token: str) -> None:
    with pytest.raises(UnauthorizedError) as refusal:
        door.user(f"Bearer {token}")
    assert refusal.value.message == "Unauthorized"
    assert refusal.value.details is None


def test_a_wrong_token_is_excused_by_nothing(tmp_path: Path) -> None:
    door = Door(allows_anonymous=True)
    good = der(tmp_path, Subject("alice"))
    with pytest.raises(UnauthorizedError):
        door.user("Bearer wrong", good)
    assert door.user("", good).name == "alice"


def test_a_token_comes_before_a_certificate(door: Door, tmp_path: Path) -> None:
    assert door.user("Bearer s3cret", der(tmp_path, Subject("bob"))).name == "alice"


@pytest.mark.parametrize("authorization", ["", "Basic YTpi", "Bearer", "Bearer "])
def test_request_without_credentials_is_rejected_or_anonymous(
    door: Door, authorization: str
) -> None:
    with pytest.raises(UnauthorizedError):
        door.user(authorization)
    user = Door(allows_anonymous=True).user(authorization)
    assert user == User("system:anonymous", groups=("system:unauthenticated",))


def test_a_bootstrap_token_is_its_secrets_user(door: Door) -> None:
    door.secrets["bootstrap-token-07401b"] = secret(auth_extra_groups="system:bootstrappers:a")
    user = door.user(f"Bearer {TOKEN}")
    groups = ("system:bootstrappers", "system:bootstrappers:a", "system:authenticated")
    assert user == User("system:bootstrap:07401b", groups=groups)
    with pytest.raises(UnauthorizedError):
        door.user(f"Bearer {TOKEN[:-1]}0")
    with pytest.raises(UnauthorizedError):
        door.user("Bearer 07401c.f395accd246ae52d")


def test_a_bootstrap_token_is_for_the_api_alone(door: Door) -> None:
    door.secrets["bootstrap-token-07401b"] = secret()
    own = door.tokens.verifier.audiences
    for asked, matched in ((None, own), (own, own), (("vault", *own), own)):
        found = door.authenticator.user_of_token(TOKEN, asked)
        assert found is not None
        assert found[1] == matched
    assert door.authenticator.user_of_token(TOKEN, ("vault",)) is None


def test_a_token_is_remembered_for_a_short_while(door: Door) -> None:
    token = f"Bearer {door.tokens.issue()}"
    assert door.user(token).name == "system:serviceaccount:ns:sa"
    del door.tokens.uids["serviceaccounts", "ns", "sa"]
    door.tokens.clock.advance(9)
    assert door.user(token)
    door.tokens.clock.advance(2)
    with pytest.raises(UnauthorizedError):
        door.user(token)


def test_the_oldest_of_many_tokens_are_forgotten() -> None:
    door = Door(remembers=2)
    tokens = [f"Bearer {door.tokens.issue(seconds=600 + extra)}" for extra in range(3)]
    for token in tokens:
        assert door.user(token)
    del door.tokens.uids["serviceaccounts", "ns", "sa"]
    assert door.user(tokens[1])
    assert door.user(tokens[2])
    with pytest.raises(UnauthorizedError):
        door.user(tokens[0])


def test_a_review_remembers_nothing(door: Door) -> None:
    token = door.tokens.issue()
    assert door.authenticator.user_of_token(token) is not None
    del door.tokens.uids["serviceaccounts", "ns", "sa"]
    assert door.authenticator.user_of_token(token) is None


def test_a_certificate_names_a_user_and_groups(tmp_path: Path) -> None:
    certificate = der(tmp_path, Subject("alice", "dev"))
    user = user_of_certificate(certificate)
    assert user is not None
    assert user.name == "alice"
    assert user.groups == ("dev", "system:authenticated")
    (credential,) = user.extra["authentication.kubernetes.io/credential-id"]
    assert credential.startswith("X509SHA256=")


def test_a_servers_certificate_names_no_user(tmp_path: Path, door: Door) -> None:
    certificate = der(tmp_path, Subject("kube-apiserver", hosts=("localhost",)))
    assert user_of_certificate(certificate) is None
    with pytest.raises(UnauthorizedError):
        door.user("", certificate)


PREFIX = "base64url.bearer.authorization.k8s.io."


@pytest.mark.parametrize(
    ("offered", "token"),
    [
        ("", None),
        ("v5.channel.k8s.io", None),
        (f"{PREFIX}czNjcmV0", "s3cret"),
        (f"v5.channel.k8s.io, {PREFIX}czNjcmV0", "s3cret"),
        (f"{PREFIX}YQ", "a"),
    ],
)
def test_a_browser_sends_its_token_as_a_subprotocol(offered: str, token: str | None) -> None:
    headers = {"Sec-WebSocket-Protocol": offered} if offered else {}
    assert websocket_token(headers) == token


@pytest.mark.parametrize("encoded", ["%%%", "_w", "a", "", "é"])
def test_invalid_token_subprotocol_is_unauthorized(encoded: str) -> None:
    with pytest.raises(UnauthorizedError):
        websocket_token({"Sec-WebSocket-Protocol": PREFIX + encoded})


ROOT = User("root", groups=("system:masters",))


def acting(headers: list[tuple[str, str]], *allowed: Action) -> User:
    proxy = CIMultiDictProxy(CIMultiDict(headers))
    return impersonated(ROOT, proxy, lambda _user, action: not allowed or action in allowed)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], ROOT),
        ([("Impersonate-User", "bob")], User("bob", groups=("system:authenticated",))),
        (
            [("Impersonate-User", "bob"), ("Impersonate-Group", "a"), ("impersonate-group", "b")],
            User("bob", groups=("a", "b", "system:authenticated")),
        ),
        (
            [("Impersonate-User", "system:serviceaccount:ns:sa")],
            User(
                "system:serviceaccount:ns:sa",
                groups=(
                    "system:serviceaccounts",
                    "system:serviceaccounts:ns",
                    "system:authenticated",
                ),
            ),
        ),
        (
            [("Impersonate-User", "system:anonymous")],
            User("system:anonymous", groups=("system:unauthenticated",)),
        ),
        (
            [
                ("Impersonate-User", "bob"),
                ("Impersonate-Uid", "7"),
                ("Impersonate-Extra-Acme.com%2Fproject", "x"),
                ("Impersonate-Extra-Acme.com%2Fproject", "y"),
            ],
            User(
                "bob",
                "7",
                ("system:authenticated",),
                {"acme.com/project": ("x", "y")},
            ),
        ),
    ],
)
def test_impersonation_headers_name_the_user(
    headers: list[tuple[str, str]], expected: User
) -> None:
    assert acting(headers) == expected


@pytest.mark.parametrize(
    "name", ["kube-system", "kube-system:", ":sa", "kube-system:a:b", "kube-system:A", "a.b:sa"]
)
def test_a_name_that_only_begins_like_an_accounts_is_a_users(name: str) -> None:
    """Else who may act as the accounts of a namespace could make up users."""
    asked: list[Action] = []
    user = f"system:serviceaccount:{name}"

    def allow(_: User, action: Action) -> bool:
        asked.append(action)
        return True

    headers = CIMultiDictProxy(CIMultiDict([("Impersonate-User", user)]))
    result = impersonated(ROOT, headers, allow)
    assert asked == [Action(verb="impersonate", resource="users", name=user)]
    assert result == User(user, groups=("system:authenticated",))


@pytest.mark.parametrize("header", ["Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-a"])
def test_groups_without_a_user_are_a_bad_request(header: str) -> None:
    with pytest.raises(BadRequestError, match="without impersonating a user"):
        acting([(header, "x")])


USER = Action(verb="impersonate", resource="users", name="bob")


@pytest.mark.parametrize(
    ("header", "needed"),
    [
        (("Impersonate-Group", "g"), Action(verb="impersonate", resource="groups", name="g")),
        (
            ("Impersonate-Uid", "7"),
            Action(
                verb="impersonate", group="authentication.k8s.io", resource="uids", name="7"
            ),
        ),
        (
            ("Impersonate-Extra-Scope", "x"),
            Action(
                verb="impersonate", group="authentication.k8s.io", resource="userextras",
                subresource="scope", name="x",
            ),
        ),
    ],
)  # fmt: skip
def test_each_impersonated_attribute_needs_permission(
    header: tuple[str, str], needed: Action
) -> None:
    headers = [("Impersonate-User", "bob"), header]
    assert acting(headers, USER, needed).name == "bob"
    with pytest.raises(ForbiddenError):
        acting(headers, USER)
    with pytest.raises(ForbiddenError) as refusal:
        acting(headers, needed)
    assert refusal.value.message == (
        'users "bob" is forbidden: User "root" cannot impersonate resource "users" in API group "" '
        "at the cluster scope"
    )


def test_an_account_is_impersonated_in_its_namespace() -> None:
    headers: list[tuple[str, Any]] = [("Impersonate-User", "system:serviceaccount:ns:sa")]
    needed = Action(verb="impersonate", resource="serviceaccounts", namespace="ns", name="sa")
    assert acting(headers, needed).name == "system:serviceaccount:ns:sa"
    with pytest.raises(ForbiddenError, match='in the namespace "ns"'):
        acting(headers, USER)
