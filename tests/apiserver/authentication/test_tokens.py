"""Service account tokens: signed, bound, mortal."""

from __future__ import annotations

import base64
from typing import Any

import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from moorage.apiserver.authentication import TokenSigner, TokenVerifier
from moorage.apiserver.authentication.service_accounts import BoundObject
from tests.clocks import FakeClock

ISSUER = "https://kubernetes.default.svc"
POD = BoundObject("pod", "p", "uid-p")
NODE = BoundObject("node", "n", "uid-n")
SECRET = BoundObject("secret", "s", "uid-s")
YEAR = 365 * 24 * 3600


class Tokens:
    """A signer, a verifier, and the objects there are."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.signer = TokenSigner(self.key, ISSUER, (ISSUER,), self.clock)
        self.uids = {
            ("serviceaccounts", "ns", "sa"): "uid-sa",
            ("pods", "ns", "p"): "uid-p",
            ("secrets", "ns", "s"): "uid-s",
            ("nodes", "", "n"): "uid-n",
        }
        self.verifier = TokenVerifier(
            self.signer.public_key,
            ISSUER,
            (ISSUER,),
            lambda plural, namespace, name: self.uids.get((plural, namespace, name)),
            self.clock,
            find_token=lambda namespace, name: self.held.get((namespace, name)),
        )
        self.held: dict[tuple[str, str], str] = {}

    def issue(self, *bound: BoundObject, seconds: int = 600, audience: str = ISSUER) -> str:
        issued = self.signer.issue(
            "ns", "sa", "uid-sa", audiences=[audience], seconds=seconds, bound=bound
        )
        return issued.token

    def is_valid(self, token: str, *audiences: str) -> bool:
        return self.verifier.verify(token, audiences or None) is not None

    def signed(self, key: Any = None, algorithm: str = "ES256", **changes: Any) -> str:
        """A token of our own making, good but for the changes."""
        claims = {
            "iss": ISSUER, "sub": "system:serviceaccount:ns:sa", "aud": [ISSUER],
            "kubernetes.io": {"namespace": "ns",
                              "serviceaccount": {"name": "sa", "uid": "uid-sa"}},
            **changes,
        }  # fmt: skip
        return jwt.encode(claims, key or self.key, algorithm)

    def legacy(self, **changes: Any) -> str:
        """A token as kube-controller-manager writes it into Secret `s`, good but for the changes;
        claims that are None are left out.
        """
        claims = {
            "iss": "kubernetes/serviceaccount",
            "sub": "system:serviceaccount:ns:sa",
            f"{LEGACY}/namespace": "ns",
            f"{LEGACY}/service-account.name": "sa",
            f"{LEGACY}/service-account.uid": "uid-sa",
            f"{LEGACY}/secret.name": "s",
            **changes,
        }
        kept = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(kept, self.key, "ES256")


LEGACY = "kubernetes.io/serviceaccount"


@pytest.fixture
def tokens() -> Tokens:
    return Tokens()


def test_token_authenticates_its_service_account(tokens: Tokens) -> None:
    verified = tokens.verifier.verify(tokens.issue(POD, NODE))
    assert verified is not None
    user, audiences = verified
    assert audiences == (ISSUER,)
    assert user.name == "system:serviceaccount:ns:sa"
    assert user.uid == "uid-sa"
    assert user.groups == (
        "system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated",
    )  # fmt: skip
    prefix = "authentication.kubernetes.io"
    assert user.extra[f"{prefix}/pod-name"] == ("p",)
    assert user.extra[f"{prefix}/pod-uid"] == ("uid-p",)
    assert user.extra[f"{prefix}/node-name"] == ("n",)
    assert user.extra[f"{prefix}/credential-id"][0].startswith("JTI=")


def test_the_claims_are_those_that_others_read(tokens: Tokens) -> None:
    token = tokens.issue(POD, NODE)
    claims = jwt.decode(token, options={"verify_signature": False})
    now = int(tokens.clock.now().timestamp())
    assert jwt.get_unverified_header(token)["kid"] == tokens.signer.key_id
    assert claims.pop("jti")
    assert claims == {
        "aud": [ISSUER], "exp": now + 600, "iat": now, "nbf": now, "iss": ISSUER,
        "sub": "system:serviceaccount:ns:sa",
        "kubernetes.io": {
            "namespace": "ns",
            "serviceaccount": {"name": "sa", "uid": "uid-sa"},
            "pod": {"name": "p", "uid": "uid-p"},
            "node": {"name": "n", "uid": "uid-n"},
        },
    }  # fmt: skip


def test_a_token_ends(tokens: Tokens) -> None:
    token = tokens.issue()
    tokens.clock.advance(599)
    assert tokens.is_valid(token)
    tokens.clock.advance(1)
    assert not tokens.is_valid(token)


def test_a_volumes_token_lives_a_year_and_says_when_to_warn(tokens: Tokens) -> None:
    issued = tokens.signer.issue(
        "ns", "sa", "uid-sa", audiences=[ISSUER], seconds=3607, bound=[POD]
    )
    now = int(tokens.clock.now().timestamp())
    claims = jwt.decode(issued.token, options={"verify_signature": False})
    assert issued.expires == now + 3607
    assert claims["kubernetes.io"]["warnafter"] == now + 3607
    assert claims["exp"] == now + YEAR


@pytest.mark.parametrize(
    ("audiences", "bound"), [(["vault"], [POD]), ([ISSUER, "vault"], [POD]), ([ISSUER], [])]
)
def test_only_a_pods_token_for_the_api_alone_lives_a_year(
    tokens: Tokens, audiences: list[str], bound: list[BoundObject]
) -> None:
    issued = tokens.signer.issue(
        "ns", "sa", "uid-sa", audiences=audiences, seconds=3607, bound=bound
    )
    now = int(tokens.clock.now().timestamp())
    claims = jwt.decode(issued.token, options={"verify_signature": False})
    assert claims["exp"] == now + 3607
    assert "warnafter" not in claims["kubernetes.io"]


@pytest.mark.parametrize(
    ("bound", "gone", "is_valid"),
    [
        ((), ("serviceaccounts", "ns", "sa"), False),
        ((POD,), ("serviceaccounts", "ns", "sa"), False),
        ((POD,), ("pods", "ns", "p"), False),
        ((SECRET,), ("secrets", "ns", "s"), False),
        ((NODE,), ("nodes", "", "n"), False),
        ((POD, NODE), ("nodes", "", "n"), True),
        ((), ("pods", "ns", "p"), True),
    ],
)
def test_a_token_dies_with_what_it_is_bound_to(
    tokens: Tokens, bound: tuple[BoundObject, ...], gone: tuple[str, str, str], is_valid: bool
) -> None:
    token = tokens.issue(*bound)
    assert tokens.is_valid(token)
    tokens.uids[gone] = "uid-of-another"
    assert tokens.is_valid(token) is is_valid
    del tokens.uids[gone]
    assert tokens.is_valid(token) is is_valid


def test_a_token_is_for_its_audience(tokens: Tokens) -> None:
    vault = tokens.issue(audience="vault")
    assert not tokens.is_valid(vault)
    verified = tokens.verifier.verify(vault, ("other", "vault"))
    assert verified is not None
    assert verified[1] == ("vault",)
    assert not tokens.is_valid(tokens.issue(), "vault")


def test_a_secrets_token_lasts_as_long_as_the_secret(tokens: Tokens) -> None:
    about: dict[str, Any] = {
        "namespace": "ns",
        "serviceaccount": {"name": "sa", "uid": "uid-sa"},
        "secret": {"name": "s", "uid": "uid-s"},
    }
    changes: dict[str, Any] = {"kubernetes.io": about}
    token = tokens.signed(**changes)
    tokens.clock.advance(10 * YEAR)
    verified = tokens.verifier.verify(token)
    assert verified is not None
    assert verified[0].extra == {}
    del tokens.uids["secrets", "ns", "s"]
    assert not tokens.is_valid(token)


def test_the_helper_makes_good_tokens(tokens: Tokens) -> None:
    assert tokens.is_valid(tokens.signed())


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://elsewhere"},
        {"nbf": 4_000_000_000},
        {"exp": 1},
        {"aud": ["other"]},
        {"aud": []},
        {"kubernetes.io": None},
        {"kubernetes.io": {}},
        {"kubernetes.io": {"namespace": "ns", "serviceaccount": {}}},
        {"kubernetes.io": {"namespace": "other", "serviceaccount": {"name": "sa",
                                                                   "uid": "uid-sa"}}},
    ],
)  # fmt: skip
def test_claims_that_do_not_hold_are_not_believed(tokens: Tokens, changes: dict[str, Any]) -> None:
    assert not tokens.is_valid(tokens.signed(**changes))


def test_only_our_key_and_our_algorithm_count(tokens: Tokens) -> None:
    assert not tokens.is_valid(tokens.signed(ec.generate_private_key(ec.SECP256R1())))
    assert not tokens.is_valid(tokens.signed("secret" * 10, "HS256"))
    unsigned = ".".join(
        base64.urlsafe_b64encode(msgspec.json.encode(part)).rstrip(b"=").decode()
        for part in ({"alg": "none"}, {"iss": ISSUER, "sub": "x", "aud": [ISSUER]}, "")
    )
    assert not tokens.is_valid(unsigned)


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "..", "é", "\udcff", "a" * 10_000])
def test_invalid_token_is_rejected(tokens: Tokens, token: str) -> None:
    assert not tokens.is_valid(token)


def test_the_key_set_verifies_what_was_signed(tokens: Tokens) -> None:
    (key,) = tokens.signer.key_set()["keys"]
    assert key["kid"] == tokens.signer.key_id
    public = jwt.PyJWK(key).key
    assert jwt.decode(tokens.issue(), public, ["ES256"], audience=ISSUER,
                      options={"verify_exp": False, "verify_nbf": False,
                               "verify_iat": False})  # fmt: skip


def test_others_verify_with_the_key_set(tokens: Tokens) -> None:
    (key,) = tokens.signer.key_set()["keys"]
    assert {name: key[name] for name in ("use", "kty", "crv", "alg", "kid")} == {
        "use": "sig", "kty": "EC", "crv": "P-256", "alg": "ES256", "kid": tokens.signer.key_id,
    }  # fmt: skip
    claims = jwt.decode(
        tokens.issue(), jwt.PyJWK(key), ["ES256"], audience=ISSUER, issuer=ISSUER,
        options={"verify_exp": False, "verify_nbf": False, "verify_iat": False},
    )  # fmt: skip
    assert claims["sub"] == "system:serviceaccount:ns:sa"
    for name in ("x", "y"):
        padded = key[name] + "=" * (-len(key[name]) % 4)
        assert len(base64.urlsafe_b64decode(padded)) == 32


def test_times_hold_from_their_first_second_to_their_last(tokens: Tokens) -> None:
    now = int(tokens.clock.now().timestamp())
    assert tokens.is_valid(tokens.signed(nbf=now, exp=now + 1))
    assert not tokens.is_valid(tokens.signed(nbf=now + 1))
    assert not tokens.is_valid(tokens.signed(exp=now))


def test_times_are_those_of_the_injected_clock(tokens: Tokens) -> None:
    tokens.clock.advance(100 * YEAR)
    now = int(tokens.clock.now().timestamp())
    assert tokens.is_valid(tokens.signed(nbf=now, iat=now, exp=now + 1))


def test_a_nodes_token_names_the_node_and_each_token_is_another(tokens: Tokens) -> None:
    first, second = tokens.issue(NODE), tokens.issue(NODE)
    result = [tokens.verifier.verify(token) for token in (first, second)]
    extras = [user_and_groups[0].extra for user_and_groups in result if user_and_groups is not None]
    prefix = "authentication.kubernetes.io"
    assert [extra[f"{prefix}/node-uid"] for extra in extras] == [("uid-n",)] * 2
    assert f"{prefix}/pod-name" not in extras[0]
    assert extras[0][f"{prefix}/credential-id"] != extras[1][f"{prefix}/credential-id"]


def test_matching_audiences_are_returned(tokens: Tokens) -> None:
    issued = tokens.signer.issue(
        "ns", "sa", "uid-sa", audiences=["b", "a", ISSUER], seconds=60, bound=[]
    )
    verified = tokens.verifier.verify(issued.token, ("a", "x", "b"))
    assert verified is not None
    assert verified[1] == ("a", "b")


def test_a_token_that_others_wrote_into_a_secret_is_its_accounts(tokens: Tokens) -> None:
    token = tokens.held["ns", "s"] = tokens.legacy()
    verified = tokens.verifier.verify(token)
    assert verified is not None
    user, audiences = verified
    assert (user.name, user.uid, user.extra) == ("system:serviceaccount:ns:sa", "uid-sa", {})
    assert audiences == (ISSUER,)
    assert not tokens.is_valid(token, "vault")


def test_it_holds_while_the_secret_has_it(tokens: Tokens) -> None:
    token = tokens.legacy()
    assert not tokens.is_valid(token)
    tokens.held["ns", "s"] = tokens.legacy(jti="another")
    assert not tokens.is_valid(token)
    tokens.held["ns", "s"] = token
    assert tokens.is_valid(token)
    tokens.uids["serviceaccounts", "ns", "sa"] = "made again"
    assert not tokens.is_valid(token)


@pytest.mark.parametrize(
    "changes",
    [
        {"sub": "system:serviceaccount:ns:admin"},
        {"iss": "kubernetes"},
        {f"{LEGACY}/namespace": "kube-system"},
        {f"{LEGACY}/namespace": 1},
        {f"{LEGACY}/service-account.name": "admin"},
        {f"{LEGACY}/service-account.uid": "other"},
        {f"{LEGACY}/secret.name": "other"},
        *({f"{LEGACY}/{name}": None} for name in
          ("namespace", "service-account.name", "service-account.uid", "secret.name")),
    ],
)  # fmt: skip
def test_its_claims_have_to_hold(tokens: Tokens, changes: dict[str, Any]) -> None:
    tokens.held["ns", "s"] = token = tokens.legacy(**changes)
    assert not tokens.is_valid(token)


def test_it_is_refused_once_its_secret_is_marked(tokens: Tokens) -> None:
    asked: list[tuple[str, str]] = []

    def is_usable(namespace: str, name: str) -> bool:
        asked.append((namespace, name))
        return False

    token = tokens.legacy()
    verifier = TokenVerifier(
        tokens.signer.public_key, ISSUER, (ISSUER,),
        lambda plural, namespace, name: tokens.uids.get((plural, namespace, name)),
        tokens.clock, is_usable, lambda *_: token,
    )  # fmt: skip
    assert verifier.verify(token) is None
    assert asked == [("ns", "s")]
