from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from moorage.engine.errors import InvalidError, UnsupportedCallError
from moorage.engine.images.skopeo import Credentials, credentials_file
from moorage.wire.cri import pb
from moorage.wire.cri.reference import parse

IMAGE = parse("registry.example:5000/app")
PACKED = base64.b64encode(b"me:pass:word").decode()


@pytest.mark.parametrize(
    ("auth", "wanted"),
    [
        ({}, None),
        ({"username": "me", "password": "p"}, Credentials("me", "p")),
        ({"username": "me", "auth": PACKED}, Credentials("me", "")),
        ({"auth": PACKED}, Credentials("me", "pass:word")),
        ({"auth": base64.b64encode(b"me:p\0\0").decode()}, Credentials("me", "p")),
        ({"identity_token": "t"}, Credentials(identity_token="t")),
        (
            {"username": "me", "server_address": "https://registry.example:5000/v2/"},
            Credentials("me"),
        ),
        ({"username": "me", "server_address": "registry.example:5000"}, Credentials("me")),
        ({"username": "me", "server_address": "registry.example"}, None),
        ({"username": "me", "server_address": "https://other.example"}, None),
    ],
)
def test_what_the_cri_gives(auth: dict[str, str], wanted: Credentials | None) -> None:
    assert Credentials.of(pb.AuthConfig(**auth), IMAGE) == wanted


def test_dockers_registry_has_several_names() -> None:
    auth = pb.AuthConfig(username="me", server_address="https://index.docker.io/v1/")
    assert Credentials.of(auth, parse("busybox")) == Credentials("me")


@pytest.mark.parametrize("auth", ["*", base64.b64encode(b"nothing").decode()])
def test_invalid_auth_is_rejected_and_not_shown(auth: str) -> None:
    with pytest.raises(InvalidError) as caught:
        Credentials.of(pb.AuthConfig(auth=auth), IMAGE)
    assert auth not in str(caught.value)


def test_registry_tokens_are_not_supported() -> None:
    with pytest.raises(UnsupportedCallError, match="registry tokens"):
        Credentials.of(pb.AuthConfig(registry_token="t"), IMAGE)


def test_secrets_are_not_printed() -> None:
    shown = repr(Credentials("me", "s3cret", "t0ken"))
    assert "s3cret" not in shown
    assert "t0ken" not in shown


def test_the_file_is_the_owners_and_goes(tmp_path: Path) -> None:
    with credentials_file(tmp_path, "x", IMAGE, Credentials("me", "p", "t")) as path:
        assert path is not None
        assert path.stat().st_mode & 0o777 == 0o600
        assert json.loads(path.read_text())["auths"] == {
            "registry.example:5000": {
                "auth": base64.b64encode(b"me:p").decode(),
                "identitytoken": "t",
            }
        }
    assert list(tmp_path.iterdir()) == []
    with credentials_file(tmp_path, "x", IMAGE, None) as path:
        assert path is None


@pytest.mark.parametrize("server", ["index.docker.io", "registry-1.docker.io", "docker.io"])
def test_every_name_of_dockers_registry_is_its_own(server: str) -> None:
    auth = pb.AuthConfig(username="me", server_address=server)
    assert Credentials.of(auth, parse("busybox")) == Credentials("me")
    assert Credentials.of(auth, IMAGE) is None


def test_a_file_without_identity_token_has_no_field_for_it(tmp_path: Path) -> None:
    with credentials_file(tmp_path, "x", IMAGE, Credentials("me", "p")) as path:
        assert path == tmp_path / "x.auth.json"
        entry = {"auth": base64.b64encode(b"me:p").decode()}
        assert json.loads(path.read_text()) == {"auths": {"registry.example:5000": entry}}
