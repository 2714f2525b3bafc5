"""Kubeconfigs: read like kubectl reads them, refused with the part that is wrong."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from moorage.client import load_kubeconfig
from moorage.client.config import ConfigError


def kubeconfig(**changes: Any) -> dict[str, Any]:
    document: dict[str, Any] = {
        "current-context": "main",
        "contexts": [
            {"name": "main", "context": {"cluster": "c", "user": "u"}},
            {"name": "other", "context": {"cluster": "c", "user": "u", "namespace": "apps"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": "https://host:6443"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    return document | changes


def cluster(**fields: Any) -> dict[str, Any]:
    return {"clusters": [{"name": "c", "cluster": {"server": "https://host", **fields}}]}


def user(**fields: Any) -> dict[str, Any]:
    return {"users": [{"name": "u", "user": {k.replace("_", "-"): v for k, v in fields.items()}}]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config"


def write(path: Path, document: Any) -> Path:
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return path


def test_the_current_context_is_meant_unless_another_is_named(path: Path) -> None:
    write(path, kubeconfig())
    config = load_kubeconfig(path)
    assert (config.server, config.token, config.namespace) == ("https://host:6443", "t", "default")
    assert load_kubeconfig(path, "other").namespace == "apps"


def test_keys_are_inline_or_in_files_beside_the_kubeconfig(path: Path) -> None:
    encoded = base64.encodebytes(b"inline").decode()
    (path.parent / "ca.pem").write_bytes(b"beside")
    document = kubeconfig(
        **cluster(**{"certificate-authority": "ca.pem"}),
        **user(client_certificate_data=encoded, client_key_data=encoded),
    )
    config = load_kubeconfig(write(path, document))
    assert (config.ca, config.certificate, config.key) == (b"beside", b"inline", b"inline")


def test_a_token_file_is_beside_the_kubeconfig_too(path: Path) -> None:
    document = kubeconfig(users=[{"name": "u", "user": {"tokenFile": "token"}}])
    config = load_kubeconfig(write(path, document))
    assert config.token_file == path.parent / "token"


def test_a_server_need_not_be_verified(path: Path) -> None:
    document = kubeconfig(**cluster(**{"insecure-skip-tls-verify": True}))
    assert load_kubeconfig(write(path, document)).insecure


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("[", "config: "),
        ("- a list", "not a kubeconfig"),
        ("", "not a kubeconfig"),
        (kubeconfig(**{"current-context": "gone"}), "contexts has no entry named 'gone'"),
        (kubeconfig(contexts=None), "contexts has no entry named 'main'"),
        (kubeconfig(contexts="x"), "contexts"),
        (kubeconfig(contexts=["x"]), "contexts has no entry named 'main'"),
        (kubeconfig(clusters=[]), "clusters has no entry named 'c'"),
        (kubeconfig(users=[]), "users has no entry named 'u'"),
        (kubeconfig(users=[{"name": "u", "user": "x"}]), "users"),
        (kubeconfig(clusters=[{"name": "c", "cluster": {}}]), "cluster 'c' names no server"),
        (kubeconfig(**user(exec={"command": "aws"})), "user 'u' needs a exec plugin"),
        (kubeconfig(**user(auth_provider={"name": "gcp"})), "needs a auth-provider plugin"),
        (kubeconfig(**user(client_key_data="%%%")), "client-key-data is not base64"),
        (kubeconfig(**user(client_key="missing.pem")), "missing.pem"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(path: Path, document: Any, says: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        load_kubeconfig(write(path, document))
    assert str(refusal.value).startswith(str(path))
    assert says in str(refusal.value)


def test_a_file_that_is_not_there_or_no_text_is_told(path: Path) -> None:
    with pytest.raises(ConfigError, match="config"):
        load_kubeconfig(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="config"):
        load_kubeconfig(path)
