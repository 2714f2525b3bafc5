"""Identities of a cluster: the certificate of each part and of the administrator.

Source: API docs "PKI certificates and requirements"; the names are those RBAC's default roles and
the node authorizer know.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moorage.api.issued_certificates import certificate_builder, key_pem, with_role
from moorage.cluster.access.credentials import Pair
from moorage.cluster.access.private_files import write_private
from moorage.cluster.layout import (
    CLUSTER_DOMAIN,
    FRONT_PROXY_NAME,
    NETWORK_NAME,
    NODE_CLIENT_NAME,
    Layout,
)
from moorage.cluster.settings import Settings, SettingsError
from moorage.linux.trust import make_private

# Certificate authority of a cluster, and the certificates that it signs.
#
# Keys are P-256. Leaf certificates last a year; a start issues one again if it expires within 90
# days or has other names. Each file is written with mode 0600 through a temporary file, so a
# crash leaves either the old or the new one. Source: API docs "PKI certificates and
# requirements".

_CA_LIFE = timedelta(days=3650)
_LEAF_LIFE = timedelta(days=365)
_RENEW_BEFORE = timedelta(days=90)
_SKEW = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a certificate: of a server with `hosts`, of a client without."""

    name: str
    organization: str = ""
    hosts: tuple[str, ...] = ()


class AuthorityError(SettingsError):
    """The authority's files are damaged. They are not replaced: every kubeconfig trusts them."""

    def __init__(self, pair: Pair, why: str) -> None:
        super().__init__(
            f"{pair.certificate} and {pair.key} are damaged ({why}); put them back as they were, "
            "or remove both and run `moor up --accept-loss`: the cluster then gets a new "
            "authority, and every kubeconfig has to be replaced"
        )


class LostKeyError(SettingsError):
    """A key or certificate that cannot be recreated as it was is missing; see `Authority`."""

    def __init__(self, path: Path, consequence: str) -> None:
        super().__init__(
            f"{path} is gone; put it back from a copy, or let a new one be made with "
            f"`moor up --accept-loss`: {consequence}"
        )


class Authority:
    """The certificate authority in a directory; created if absent, replaced if not valid at `now`.

    `is_new`: nothing depends on its files yet. Otherwise a missing file is not replaced.

    Raises AuthorityError for damaged files, LostKeyError for missing ones.
    """

    def __init__(self, directory: Path, now: datetime, *, is_new: bool = True) -> None:
        self._directory = directory
        self._now = now
        self._is_new = is_new
        make_private(directory)
        self.pair = self._pair("ca")
        missing = [path for path in (self.pair.certificate, self.pair.key) if not path.exists()]
        if missing:
            if not is_new:
                raise LostKeyError(
                    missing[0],
                    "every kubeconfig then has to be replaced, and pods that trust the old "
                    "authority have to be made again",
                )
            self._make_authority()
        elif not self._is_authority_valid():
            # Issued while the clock was years off, or expired: clients would refuse it.
            self._make_authority()
        self._certificate, self._key = self._read_authority()

    def issue(self, file_name: str, subject: Subject) -> Pair:
        """Return the pair of that name for that subject; issue it if it is missing or unusable."""
        pair = self._pair(file_name)
        if not self._is_usable(pair, subject):
            self._make_leaf(pair, subject)
        return pair

    def signing_key(self) -> Path:
        """Return the path of the key that signs service account tokens.

        The key is created once and never renewed. Raises LostKeyError if it is missing and
        `is_new` is false.
        """
        path = self._directory / "service-accounts.key"
        if not path.exists():
            if not self._is_new:
                raise LostKeyError(path, "service account tokens given out before are then refused")
            write_private(path, key_pem(ec.generate_private_key(ec.SECP256R1())))
        return path

    def _pair(self, file_name: str) -> Pair:
        return Pair.named(self._directory, file_name)

    def _is_usable(self, pair: Pair, subject: Subject) -> bool:
        try:
            certificate, key = _load(pair)
        except (FileNotFoundError, ValueError):
            return False
        return (
            _is_issued_by(certificate, self._certificate)
            and certificate.public_key() == key.public_key()
            and _is_valid_at(certificate, self._now)
            and certificate.not_valid_after_utc - self._now > _RENEW_BEFORE
            and certificate.subject == _name(subject)
            and _hosts_of(certificate) == frozenset(subject.hosts)
        )

    def _is_authority_valid(self) -> bool:
        """Return whether the certificate is valid now.

        The certificate alone: a replacement that broke off has left it beside a newer key.
        """
        try:
            certificate = x509.load_pem_x509_certificate(self.pair.certificate.read_bytes())
        except ValueError as error:
            raise AuthorityError(self.pair, str(error)) from error
        return _is_valid_at(certificate, self._now)

    def _read_authority(self) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        try:
            certificate, key = _load(self.pair)
            is_pair = certificate.public_key() == key.public_key()
        except ValueError as error:
            raise AuthorityError(self.pair, str(error)) from error
        if not is_pair:
            raise AuthorityError(self.pair, "the key is not the certificate's")
        return certificate, key

    def _make_authority(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(Subject("moorage-ca"))
        builder = self._builder(name, name, key.public_key(), _CA_LIFE)
        builder = with_role(builder, is_authority=True)
        self._save(self.pair, key, builder.sign(key, hashes.SHA256()))

    def _make_leaf(self, pair: Pair, subject: Subject) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(
            _name(subject), self._certificate.subject, key.public_key(), _LEAF_LIFE
        )
        builder = with_role(builder, is_authority=False)
        use = ExtendedKeyUsageOID.SERVER_AUTH if subject.hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        if subject.hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in subject.hosts])
            builder = builder.add_extension(names, critical=False)
        self._save(pair, key, builder.sign(self._key, hashes.SHA256()))

    def _builder(
        self,
        subject: x509.Name,
        issuer: x509.Name,
        public_key: ec.EllipticCurvePublicKey,
        life: timedelta,
    ) -> x509.CertificateBuilder:
        begins, ends = self._now - _SKEW, self._now + life
        return certificate_builder(subject, issuer, public_key, begins, ends)

    def _save(
        self, pair: Pair, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate
    ) -> None:
        # The key first: a certificate without its key would look usable.
        write_private(pair.key, key_pem(key))
        write_private(pair.certificate, certificate.public_bytes(serialization.Encoding.PEM))


def _is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _is_valid_at(certificate: x509.Certificate, moment: datetime) -> bool:
    return certificate.not_valid_before_utc <= moment < certificate.not_valid_after_utc


def _name(subject: Subject) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, subject.name)]
    if subject.organization:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, subject.organization))
    return x509.Name(attributes)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _hosts_of(certificate: x509.Certificate) -> frozenset[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(str(name.value) for name in names)


def _load(pair: Pair) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Return the certificate and key of a pair. Raises FileNotFoundError, ValueError."""
    certificate = x509.load_pem_x509_certificate(pair.certificate.read_bytes())
    key = serialization.load_pem_private_key(pair.key.read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{pair.key}: not an elliptic curve key")
    return certificate, key


_SERVICE_NAMES = (
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    f"kubernetes.default.svc.{CLUSTER_DOMAIN}",
)

_LOOPBACK = ("localhost", "127.0.0.1")


def prepare(layout: Layout, settings: Settings, *, is_new: bool) -> None:
    """Issue every certificate that is missing, about to expire, or has other names.

    Creates a missing authority or signing key only if `is_new`.

    Raises AuthorityError for damaged files of the authority, LostKeyError for missing ones.
    """
    now = datetime.now(UTC)
    authority = Authority(layout.pki, now, is_new=is_new)
    for file_name, subject in _subjects(settings).items():
        authority.issue(file_name, subject)
    authority.signing_key()
    # Extension servers read the authority from a ConfigMap: a new one takes nothing from anyone.
    Authority(layout.front_proxy, now).issue("client", Subject(FRONT_PROXY_NAME))


def _subjects(settings: Settings) -> dict[str, Subject]:
    """Return the subject of each certificate by file name, as in `credentials.Credentials`."""
    node = f"system:node:{settings.node_name}"
    api_hosts = (*_SERVICE_NAMES, "localhost", *settings.api_addresses, settings.service_ip)
    node_hosts = (settings.node_name, settings.node_ip, "127.0.0.1")
    return {
        "apiserver": Subject("kube-apiserver", hosts=_unique(api_hosts)),
        "apiserver-node-client": Subject(NODE_CLIENT_NAME),
        "admin": Subject("kubernetes-admin", "system:masters"),
        "controllers": Subject("system:kube-controller-manager"),
        "scheduler": Subject("system:kube-scheduler"),
        "network": Subject(NETWORK_NAME),
        "controllers-server": Subject("kube-controller-manager", hosts=_LOOPBACK),
        "scheduler-server": Subject("kube-scheduler", hosts=_LOOPBACK),
        "node": Subject(node, "system:nodes"),
        "node-server": Subject(node, "system:nodes", _unique(node_hosts)),
    }


def _unique(hosts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(hosts))
