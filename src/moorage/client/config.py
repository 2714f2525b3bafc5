"""Connection settings and kubeconfig files: the API server's URL and the user's credentials.

Source: client-go "kubeconfig" (clientcmd/v1). Exec and auth-provider plugins are refused with a
ConfigError, because this package does not run programs.
"""

from __future__ import annotations

import base64
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moorage.api.yaml_values import YamlError, parse_document


class ConfigError(ValueError):
    """A kubeconfig that cannot be used; the message names the file and the field."""


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """One server and one identity. Certificates and keys are PEM bytes.

    `token_file` is read again when its mtime changes, because bound service account tokens rotate.
    """

    server: str
    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = None
    token: str | None = None
    token_file: Path | None = None
    insecure: bool = False
    namespace: str = "default"

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the TLS context of the connection; None for plain HTTP.

        Raises ssl.SSLError for an invalid certificate or key.
        """
        if not self.server.startswith("https:"):
            return None
        cadata = self.ca.decode() if self.ca else None
        context = ssl.create_default_context(cadata=cadata)
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate and self.key:
            _load_pair(context, self.certificate, self.key)
        return context


def _load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    # The ssl module takes a client certificate from a file only.
    with tempfile.NamedTemporaryFile(suffix=".pem") as pair:
        pair.write(certificate + b"\n" + key)
        pair.flush()
        context.load_cert_chain(pair.name)


def load_kubeconfig(path: Path, context_name: str | None = None) -> ClientConfig:
    """Read the settings of a kubeconfig's context; None selects its current context.

    Raises ConfigError when the file cannot be read, is not a kubeconfig, has no such context, or
    requires an exec or auth-provider plugin.
    """
    try:
        document = parse_document(path.read_bytes()).value
    except (OSError, YamlError) as error:
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: not a kubeconfig")
    chosen = context_name or document.get("current-context", "")
    context = _named(document, "contexts", "context", chosen, path)
    cluster = _named(document, "clusters", "cluster", context.get("cluster", ""), path)
    user = _named(document, "users", "user", context.get("user", ""), path)
    for plugin in ("exec", "auth-provider"):
        if plugin in user:
            raise ConfigError(f"{path}: user {context.get('user')!r} needs a {plugin} plugin")
    if not cluster.get("server"):
        raise ConfigError(f"{path}: cluster {context.get('cluster')!r} names no server")
    token_file = user.get("tokenFile")
    return ClientConfig(
        server=cluster["server"],
        ca=_data(cluster, "certificate-authority", path),
        certificate=_data(user, "client-certificate", path),
        key=_data(user, "client-key", path),
        token=user.get("token"),
        token_file=path.parent / token_file if token_file else None,
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
        namespace=context.get("namespace") or "default",
    )


def _named(
    document: dict[str, Any], section: str, field: str, name: str, path: Path
) -> dict[str, Any]:
    entries = document.get(section) or ()
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == name:
            value = entry.get(field) or {}
            if isinstance(value, dict):
                return value
    raise ConfigError(f"{path}: {section} has no entry named {name!r}")


def _data(entry: dict[str, Any], field: str, path: Path) -> bytes | None:
    if f"{field}-data" in entry:
        try:
            return base64.b64decode("".join(entry[f"{field}-data"].split()), validate=True)
        except (AttributeError, ValueError) as error:
            raise ConfigError(f"{path}: {field}-data is not base64") from error
    if field in entry:
        try:
            return (path.parent / str(entry[field])).read_bytes()
        except OSError as error:
            raise ConfigError(f"{path}: {error}") from error
    return None
