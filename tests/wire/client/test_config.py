"""Kubeconfigs: read like kubectl reads them, refused with the part that is wrong."""

from __future__ import annotations

import base64
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from moorage.cluster.access.identities import Authority, Subject
from moorage.wire.client.config import (
    ClientConfig,
    ConfigError,
    in_cluster_config,
    load_kubeconfig,
    load_kubeconfigs,
)


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
    configuration = load_kubeconfig(path)
    assert (configuration.server, configuration.token, configuration.namespace) == (
        "https://host:6443",
        "t",
        "default",
    )
    assert load_kubeconfig(path, "other").namespace == "apps"


def test_keys_are_inline_or_in_files_beside_the_kubeconfig(path: Path) -> None:
    encoded = base64.encodebytes(b"inline").decode()
    (path.parent / "ca.pem").write_bytes(b"beside")
    document = kubeconfig(
        **cluster(**{"certificate-authority": "ca.pem"}),
        **user(client_certificate_data=encoded, client_key_data=encoded),
    )
    configuration = load_kubeconfig(write(path, document))
    assert (configuration.ca, configuration.certificate, configuration.key) == (
        b"beside",
        b"inline",
        b"inline",
    )


def test_a_token_file_is_beside_the_kubeconfig_too(path: Path) -> None:
    document = kubeconfig(users=[{"name": "u", "user": {"tokenFile": "token"}}])
    configuration = load_kubeconfig(write(path, document))
    assert configuration.token_file == path.parent / "token"


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
        (kubeconfig(**user(exec={"command": "aws"})), "exec.apiVersion is None"),
        (kubeconfig(**user(auth_provider={"name": "gcp"})), "needs an auth-provider plugin"),
        (kubeconfig(**user(client_key_data="%%%")), "client-key-data is not base64"),
        (kubeconfig(**user(client_key="missing.pem")), "missing.pem"),
    ],
)  # fmt: skip
def test_invalid_kubeconfig_is_rejected_with_path_and_reason(
    path: Path, document: Any, says: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        load_kubeconfig(write(path, document))
    assert str(refusal.value).startswith(str(path))
    assert says in str(refusal.value)


def test_missing_or_binary_kubeconfig_is_rejected(path: Path) -> None:
    with pytest.raises(ConfigError, match="config"):
        load_kubeconfig(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="config"):
        load_kubeconfig(path)


def test_what_a_kubeconfig_leaves_out_is_absent(path: Path) -> None:
    configuration = load_kubeconfig(write(path, kubeconfig(users=[{"name": "u", "user": None}])))
    assert configuration == ClientConfig(server="https://host:6443")
    assert (
        configuration.ca,
        configuration.certificate,
        configuration.key,
        configuration.token,
        configuration.token_file,
    ) == (None,) * 5
    assert not configuration.insecure


def test_the_named_entry_is_used_and_no_other(path: Path) -> None:
    others = [{"name": "x", "cluster": {"server": "https://wrong"}}, None]
    document = kubeconfig(clusters=[*others, *kubeconfig()["clusters"]])
    assert load_kubeconfig(write(path, document)).server == "https://host:6443"


@pytest.mark.parametrize("value", [5, "%%%", "YQ==YQ==", "a"])
def test_invalid_base64_is_rejected(path: Path, value: Any) -> None:
    document = kubeconfig(**cluster(**{"certificate-authority-data": value}))
    with pytest.raises(ConfigError, match="certificate-authority-data is not base64"):
        load_kubeconfig(write(path, document))


def test_plain_http_has_no_tls() -> None:
    assert ClientConfig(server="http://host").ssl_context() is None


@pytest.mark.parametrize("insecure", [False, True])
def test_a_server_is_verified_unless_the_config_says_otherwise(insecure: bool) -> None:
    context = ClientConfig(server="https://host", insecure=insecure).ssl_context()
    assert context is not None
    assert context.check_hostname is not insecure
    assert context.verify_mode is (ssl.CERT_NONE if insecure else ssl.CERT_REQUIRED)


def test_the_authority_and_the_pair_are_used(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki", datetime.now(UTC))
    pair = authority.issue("me", Subject("me"))
    own = authority.issue("server", Subject("server", hosts=("127.0.0.1",)))
    ca = authority.pair.certificate.read_bytes()
    certificate, key = pair.certificate.read_bytes(), pair.key.read_bytes()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=ca.decode())
    server.load_cert_chain(own.certificate, own.key)
    server.verify_mode = ssl.CERT_REQUIRED
    # One line break between them is made: the files may lack the last one.
    known = ClientConfig("https://127.0.0.1", ca, certificate.rstrip(), key).ssl_context()
    unknown = ClientConfig("https://127.0.0.1", ca, certificate).ssl_context()
    assert known is not None
    assert len(known.get_ca_certs()) == 1
    assert unknown is not None
    assert _handshakes(known, server)
    with pytest.raises(ssl.SSLError):
        _handshakes(unknown, server)


def _handshakes(client: ssl.SSLContext, server: ssl.SSLContext) -> bool:
    """Whether both sides agree, in memory. Raises SSLError."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(down, up, server_hostname="127.0.0.1")
    theirs = server.wrap_bio(up, down, server_side=True)
    ready: set[int] = set()
    for _ in range(10):
        for side in (ours, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            ready.add(id(side))
    return len(ready) == 2


def test_of_several_kubeconfigs_the_first_entry_counts(tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    first = write(tmp_path / "first", kubeconfig(**{"current-context": "", "users": []}))
    second = write(
        tmp_path / "second" / "config",
        kubeconfig(
            **cluster(server="https://other"),
            users=[{"name": "u", "user": {"tokenFile": "token"}}],
            **{"current-context": "other"},
        ),
    )
    merged = load_kubeconfigs([tmp_path / "none", first, second])
    assert (merged.server, merged.namespace) == ("https://host:6443", "apps")
    assert merged.token_file == second.parent / "token"
    assert load_kubeconfigs([second, first], "main").server == "https://other"


def test_kubeconfigs_that_do_not_exist_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"{tmp_path}/a, {tmp_path}/b: no such kubeconfig"):
        load_kubeconfigs([tmp_path / "a", tmp_path / "b"])


def test_a_kubeconfig_without_a_current_context_is_refused(path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no current context"):
        load_kubeconfig(write(path, kubeconfig(**{"current-context": ""})))


def test_a_file_that_is_missing_is_named_once(path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_kubeconfig(path)
    assert str(caught.value) == f"{path}: No such file or directory"


def service_account(directory: Path) -> Path:
    for name, text in (("token", "t"), ("ca.crt", "PEM"), ("namespace", "moorage-system\n")):
        (directory / name).write_text(text)
    return directory


def test_a_pod_connects_as_its_service_account(tmp_path: Path) -> None:
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    config = in_cluster_config(environment, service_account(tmp_path))
    assert config == ClientConfig(
        server="https://10.0.0.1:443",
        ca=b"PEM",
        token_file=tmp_path / "token",
        namespace="moorage-system",
    )


def test_an_ipv6_address_of_the_service_stands_in_brackets(tmp_path: Path) -> None:
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    assert (
        in_cluster_config(environment, service_account(tmp_path)).server == "https://[fd00::1]:443"
    )


def test_outside_of_a_pod_there_is_no_own_cluster(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="KUBERNETES_SERVICE_HOST"):
        in_cluster_config({}, service_account(tmp_path))


def test_a_pod_without_a_token_is_refused(tmp_path: Path) -> None:
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    (service_account(tmp_path) / "token").unlink()
    with pytest.raises(ConfigError, match="automountServiceAccountToken"):
        in_cluster_config(environment, tmp_path)
