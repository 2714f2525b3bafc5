"""Connection settings and kubeconfig files: the API server's URL and the user's credentials.

Source: client-go "kubeconfig" (clientcmd/v1). Users of auth-provider plugins, which client-go no
longer has either, are refused with a ConfigError.
"""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moorage.wire.client.credential_plugin import CredentialPlugin, parse_plugin, with_authority

SERVICE_ACCOUNT_DIRECTORY = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds the token, authority and namespace of its ServiceAccount."""


class ConfigError(ValueError):
    """A kubeconfig that cannot be used; the message names the file and the field."""


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """One server and one identity. Certificates and keys are PEM bytes.

    `plugin` is the program that gives the credentials, where the kubeconfig names one.
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
    plugin: CredentialPlugin | None = None

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
            load_pair(context, self.certificate, self.key)
        return context


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Have a TLS context present a certificate, given in PEM. Raises ssl.SSLError."""
    # The ssl module takes a client certificate from a file only.
    with tempfile.NamedTemporaryFile(suffix=".pem") as pair:
        pair.write(certificate + b"\n" + key)
        pair.flush()
        context.load_cert_chain(pair.name)


def in_cluster_config(
    environment: Mapping[str, str] = os.environ, directory: Path = SERVICE_ACCOUNT_DIRECTORY
) -> ClientConfig:
    """Return the connection of a pod to its own cluster, as its ServiceAccount.

    Source: client-go `rest.InClusterConfig`. Raises ConfigError outside of a pod, and in one
    without a ServiceAccount's token.
    """
    server = _in_cluster_server(environment)
    token = directory / "token"
    try:
        ca = (directory / "ca.crt").read_bytes()
        token.read_bytes()
        namespace = (directory / "namespace").read_text().strip()
    except OSError as error:
        raise ConfigError(
            f"{error.filename}: {error.strerror}; the pod has no ServiceAccount token mounted "
            "(automountServiceAccountToken)"
        ) from error
    return ClientConfig(
        server=server,
        ca=ca,
        token_file=token,
        namespace=namespace or "default",
    )


def in_cluster_anonymous_config(
    authority: Path, environment: Mapping[str, str] = os.environ
) -> ClientConfig:
    """Return the connection of a pod to its own cluster without credentials.

    `authority` is the cluster's, such as the mounted ConfigMap `kube-root-ca.crt`. Raises
    ConfigError outside of a pod, and for an authority that cannot be read.
    """
    server = _in_cluster_server(environment)
    try:
        return ClientConfig(server=server, ca=authority.read_bytes())
    except OSError as error:
        raise ConfigError(f"{authority}: {error.strerror}") from error


def _in_cluster_server(environment: Mapping[str, str]) -> str:
    host, port = (environment.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
    if not host or not port:
        raise ConfigError(
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set, as they are in a "
            "pod: give a kubeconfig outside of a cluster"
        )
    address = f"[{host}]" if ":" in host else host
    return f"https://{address}:{port}"


def load_kubeconfig(path: Path, context_name: str | None = None) -> ClientConfig:
    """Read the settings of a kubeconfig's context; None selects its current context.

    Raises ConfigError when the file cannot be read, is not a kubeconfig, has no such context, or
    requires an auth-provider plugin.
    """
    return _config([(path, _read(path))], context_name)


def load_kubeconfigs(paths: Sequence[Path], context_name: str | None = None) -> ClientConfig:
    """Read the settings of a context of several kubeconfigs, as KUBECONFIG names them.

    Of entries with the same name the first one counts, and so does the first current context;
    files that do not exist are left out. Source: client-go clientcmd, `ClientConfigLoadingRules`.

    Raises ConfigError as `load_kubeconfig` does, and if no file exists.
    """
    present = [path for path in paths if path.exists()]
    if not present:
        raise ConfigError(f"{', '.join(map(str, paths))}: no such kubeconfig")
    return _config([(path, _read(path)) for path in present], context_name)


def _read(path: Path) -> dict[str, Any]:
    # Parts in pods have no kubeconfig, and do without the parser's memory.
    from moorage.api.yaml_values import YamlError, parse_document

    try:
        document = parse_document(path.read_bytes()).value
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except YamlError as error:
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: not a kubeconfig")
    return document


_Documents = Sequence[tuple[Path, dict[str, Any]]]


def _config(documents: _Documents, context_name: str | None) -> ClientConfig:
    chosen = context_name or next(
        (name for _, document in documents if (name := document.get("current-context"))), ""
    )
    if not chosen:
        raise ConfigError(f"{_names(documents)}: there is no current context; name one")
    _, context = _named(documents, "contexts", "context", chosen)
    cluster_path, cluster = _named(documents, "clusters", "cluster", context.get("cluster", ""))
    user_path, user = _named(documents, "users", "user", context.get("user", ""))
    if "auth-provider" in user:
        raise ConfigError(
            f"{user_path}: user {context.get('user')!r} needs an auth-provider plugin, which no "
            "client has any more: use an exec plugin"
        )
    if not cluster.get("server"):
        raise ConfigError(f"{cluster_path}: cluster {context.get('cluster')!r} names no server")
    token_file = user.get("tokenFile")
    authority = _data(cluster, "certificate-authority", cluster_path)
    return ClientConfig(
        server=cluster["server"],
        ca=authority,
        certificate=_data(user, "client-certificate", user_path),
        key=_data(user, "client-key", user_path),
        token=user.get("token"),
        token_file=user_path.parent / token_file if token_file else None,
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
        namespace=context.get("namespace") or "default",
        plugin=_plugin(user, user_path, with_authority(cluster, authority)),
    )


def _plugin(
    user: dict[str, Any], path: Path, cluster: Mapping[str, Any]
) -> CredentialPlugin | None:
    given = user.get("exec")
    if not given:
        return None
    try:
        return parse_plugin(given, path.parent, cluster)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error


def _named(
    documents: _Documents, section: str, field: str, name: str
) -> tuple[Path, dict[str, Any]]:
    """Return the first entry of a name, and its file. Raises ConfigError without one."""
    for path, document in documents:
        entries = document.get(section)
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and entry.get("name") == name:
                value = entry.get(field) or {}
                if isinstance(value, dict):
                    return path, value
    raise ConfigError(f"{_names(documents)}: {section} has no entry named {name!r}")


def _names(documents: _Documents) -> str:
    return ", ".join(str(path) for path, _ in documents)


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
            raise ConfigError(f"{path}: {field} {entry[field]}: {error.strerror}") from error
    return None
