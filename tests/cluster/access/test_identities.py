"""Identities: a start makes every certificate that a part uses."""

from __future__ import annotations

from pathlib import Path

from cryptography import x509

from moorage.apiserver.authorization.default_policy import BINDINGS
from moorage.cluster.access.credentials import Credentials
from moorage.cluster.access.identities import prepare
from moorage.cluster.layout import NODE_CLIENT_NAME, Layout
from tests.cluster.test_settings import SETTINGS


def test_a_start_makes_every_credential_that_a_part_uses(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    prepare(layout, SETTINGS, is_new=True)
    credentials = Credentials(layout)
    users = {
        pair: x509.load_pem_x509_certificate(pair.certificate.read_bytes()).subject.rfc4514_string()
        for pair in (
            credentials.authority, credentials.api_server, credentials.admin,
            credentials.controllers, credentials.scheduler, credentials.node,
            credentials.node_server, credentials.node_client,
        )
    }  # fmt: skip
    assert list(users.values()) == [
        "CN=moorage-ca",
        "CN=kube-apiserver",
        "CN=kubernetes-admin,O=system:masters",
        "CN=system:kube-controller-manager",
        "CN=system:kube-scheduler",
        "CN=system:node:n1,O=system:nodes",
        "CN=system:node:n1,O=system:nodes",
        "CN=kube-apiserver-kubelet-client",
    ]
    assert all(pair.key.stat().st_mode & 0o777 == 0o600 for pair in users)
    assert credentials.signing_key.is_file()


def test_the_servers_are_known_by_every_address_that_clients_use(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    prepare(layout, SETTINGS, is_new=True)
    credentials = Credentials(layout)

    def hosts(path: Path) -> set[str]:
        made = x509.load_pem_x509_certificate(path.read_bytes())
        names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return {str(name.value) for name in names}

    assert hosts(credentials.api_server.certificate) >= {
        "kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost",
        SETTINGS.service_ip, *SETTINGS.api_addresses,
    }  # fmt: skip
    assert hosts(credentials.node_server.certificate) == {"n1", "192.0.2.7", "127.0.0.1"}


def test_the_api_servers_user_may_do_everything_at_a_kubelet() -> None:
    assert f"User {NODE_CLIENT_NAME}" in BINDINGS["system:kubelet-api-admin"]
