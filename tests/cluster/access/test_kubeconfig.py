from __future__ import annotations

import base64
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from moorage.cluster.access import kubeconfig
from moorage.cluster.access.identities import Authority, Subject
from moorage.cluster.access.kubeconfig import Access
from moorage.wire.client.config import ConfigError, load_kubeconfig


@pytest.fixture
def access(tmp_path: Path) -> Access:
    authority = Authority(tmp_path / "pki", datetime.now(UTC))
    admin = authority.issue("admin", Subject("admin", "system:masters"))
    return Access("moorage", "https://127.0.0.1:6443", authority.pair.certificate, admin)


def test_what_is_written_is_what_a_client_loads(tmp_path: Path, access: Access) -> None:
    path = tmp_path / "kubeconfig"
    kubeconfig.write(path, access)
    config = load_kubeconfig(path)
    assert config.server == access.server
    assert config.ca == access.authority.read_bytes()
    assert config.key == access.identity.key.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    # In the order that kubectl writes them.
    assert path.read_text() == yaml.safe_dump(kubeconfig.document(access), sort_keys=False)


def test_a_kubeconfig_has_one_context_with_its_certificates(access: Access) -> None:
    def embedded(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    cluster = {
        "server": "https://127.0.0.1:6443",
        "certificate-authority-data": embedded(access.authority),
    }
    user = {
        "client-certificate-data": embedded(access.identity.certificate),
        "client-key-data": embedded(access.identity.key),
    }
    context = {"cluster": "moorage", "user": "moorage-admin"}
    assert kubeconfig.document(access) == {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "moorage", "cluster": cluster}],
        "users": [{"name": "moorage-admin", "user": user}],
        "contexts": [{"name": "moorage", "context": context}],
        "current-context": "moorage",
    }


@pytest.mark.parametrize("content", [None, "", "clusters: null\n", "kind: Config\n"])
def test_merging_into_an_empty_file(tmp_path: Path, access: Access, content: str | None) -> None:
    path = tmp_path / "home" / ".kube" / "config"
    kubeconfig.unmerge(path, "moorage")
    assert not path.parent.exists()
    if content is not None:
        path.parent.mkdir(parents=True)
        path.write_text(content)
    kubeconfig.merge(path, access)
    # A file that is there need not name its version, and is given none.
    own = kubeconfig.document(access)
    unnamed = {"clusters: null\n": {"apiVersion", "kind"}, "kind: Config\n": {"apiVersion"}}
    left_out = unnamed.get(content or "", set())
    wanted = {name: value for name, value in own.items() if name not in left_out}
    assert yaml.safe_load(path.read_text()) == wanted
    assert path.stat().st_mode & 0o777 == 0o600


def test_unmerging_leaves_the_context_of_another_cluster(tmp_path: Path, access: Access) -> None:
    path = tmp_path / "config"
    kubeconfig.merge(path, access)
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"current-context": "work"}))
    kubeconfig.unmerge(path, "moorage")
    assert yaml.safe_load(path.read_text()) == {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [],
        "users": [],
        "contexts": [],
        "current-context": "work",
    }


USERS_OWN = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "work", "cluster": {"server": "https://work"}}],
    "users": [{"name": "me", "user": {"token": "secret"}}],
    "contexts": [{"name": "work", "context": {"cluster": "work", "user": "me"}}],
    "current-context": "work",
    "preferences": {"colors": True},
}


def test_merging_keeps_the_users_own_entries_and_unmerging_leaves_only_them(
    tmp_path: Path, access: Access
) -> None:
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(USERS_OWN))
    kubeconfig.merge(path, access)
    kubeconfig.merge(path, access)
    merged = yaml.safe_load(path.read_text())
    assert [entry["name"] for entry in merged["contexts"]] == ["work", "moorage"]
    assert merged["current-context"] == "moorage"
    assert merged["preferences"] == {"colors": True}
    assert load_kubeconfig(path, "work").token == "secret"
    kubeconfig.unmerge(path, "moorage")
    assert yaml.safe_load(path.read_text()) == USERS_OWN | {"current-context": ""}


@pytest.mark.parametrize("content", ["- a list", "kind: Pod", "{"])
def test_invalid_kubeconfig_is_not_merged_into(
    tmp_path: Path, access: Access, content: str
) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(ConfigError, match="config"):
        kubeconfig.merge(path, access)
    assert path.read_text() == content


@pytest.mark.parametrize("plugin", ["exec", "auth-provider"])
def test_plugins_are_refused_by_name(tmp_path: Path, plugin: str) -> None:
    path = tmp_path / "config"
    users = [{"name": "me", "user": {plugin: {"command": "x"}}}]
    path.write_text(yaml.safe_dump(USERS_OWN | {"users": users}))
    with pytest.raises(ConfigError, match=plugin):
        load_kubeconfig(path)


def test_a_link_to_the_users_file_stays_a_link(tmp_path: Path, access: Access) -> None:
    real, link = tmp_path / "dotfiles" / "config", tmp_path / "config"
    real.parent.mkdir()
    real.write_text(yaml.safe_dump(USERS_OWN))
    link.symlink_to(real)
    kubeconfig.merge(link, access)
    assert link.is_symlink()
    assert len(yaml.safe_load(real.read_text())["contexts"]) == 2
    kubeconfig.unmerge(link, access.name)
    assert link.is_symlink()
    assert yaml.safe_load(real.read_text())["contexts"] == USERS_OWN["contexts"]


@pytest.mark.parametrize(
    "content",
    [b"clusters: {a: b}", b"users: [text]", b"contexts: [null]", b"[]", b"\xff\xfe", b"kind: Pod"],
)
def test_undecodable_kubeconfig_is_left_unchanged(
    tmp_path: Path, access: Access, content: bytes
) -> None:
    path = tmp_path / "config"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=str(path)):
        kubeconfig.merge(path, access)
    with pytest.raises(ConfigError, match=str(path)):
        kubeconfig.unmerge(path, access.name)
    assert path.read_bytes() == content
