from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from moorage.client.config import ConfigError, load_kubeconfig
from moorage.cluster import kubeconfig
from moorage.cluster.certificates import Authority, Subject
from moorage.cluster.kubeconfig import Access


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
