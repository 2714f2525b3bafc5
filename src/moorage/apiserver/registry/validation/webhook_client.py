"""Webhook client validation: the URL, service and CA bundle by which a webhook is called.

Source: apiserver `util/webhook` of Kubernetes 1.36.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from urllib.parse import urlsplit

from moorage.api import names
from moorage.api.certificates import pem_blocks
from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj

_DESIRED_FORM = "; desired format: https://host[/path]"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}")
_PORT = re.compile(r"[^@\[\]]*?(:[^:]*)?|\[[^]]*\](:.*)?")


def client_errors(client: Obj, path: str) -> list[FieldError]:
    """Validate a client configuration, which has either a URL or a service."""
    if ("url" in client) == ("service" in client):
        return [FieldError.required(path, "exactly one of url or service is required")]
    if "url" in client:
        return _url_errors(client["url"], f"{path}.url")
    return _service_errors(client["service"], f"{path}.service")


def _url_errors(url: str, path: str) -> list[FieldError]:
    problem = _parse_problem(url)
    if problem:
        return [
            FieldError.required(path, f"url must be a valid URL: {problem}{_DESIRED_FORM}"),
        ]
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    errors: list[FieldError] = []
    if parts.scheme != "https":
        errors.append(
            FieldError.invalid(
                path, parts.scheme, f"'https' is the only allowed URL scheme{_DESIRED_FORM}"
            )
        )
    if not host:
        errors.append(FieldError.invalid(path, host, f"host must be specified{_DESIRED_FORM}"))
    if "@" in parts.netloc:
        errors.append(
            FieldError.invalid(path, user, "user information is not permitted in the URL")
        )
    if parts.fragment:
        errors.append(
            FieldError.invalid(path, parts.fragment, "fragments are not permitted in the URL")
        )
    if parts.query:
        errors.append(
            FieldError.invalid(path, parts.query, "query parameters are not permitted in the URL")
        )
    return errors


def _parse_problem(url: str) -> str:
    """Return why a URL cannot be parsed, in the words of Go's parser; empty for a URL."""
    shown = f"parse {json.dumps(url, ensure_ascii=False)}"
    if _CONTROL.search(url):
        return f"{shown}: net/url: invalid control character in URL"
    if url.startswith(":"):
        return f"{shown}: missing protocol scheme"
    if escape := _BAD_ESCAPE.search(url):
        return f'{shown}: invalid URL escape "{escape.group()}"'
    try:
        parts = urlsplit(url)
    except ValueError:
        return f"{shown}: missing ']' in host"
    port = _PORT.fullmatch(parts.netloc.rpartition("@")[2])
    suffix = (port.group(1) or port.group(2) or "") if port else ""
    if suffix and not re.fullmatch(r":\d*", suffix):
        return f'{shown}: invalid port "{suffix}" after host'
    return ""


def _service_errors(service: Obj, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    # Upstream passes name and namespace in the wrong order, so each is missed under the other.
    if not service.get("namespace"):
        errors.append(FieldError.required(f"{path}.name"))
    if not service.get("name"):
        errors.append(FieldError.required(f"{path}.namespace"))
    port = service.get("port", 0)
    if not 1 <= port <= 65535:
        errors.append(
            FieldError.invalid(
                f"{path}.port", port, "port is not valid: must be between 1 and 65535, inclusive"
            )
        )
    return errors + _service_path_errors(service.get("path", ""), f"{path}.path")


def _service_path_errors(url_path: str, path: str) -> list[FieldError]:
    if url_path in ("", "/"):
        return []
    if url_path == "//":
        return [FieldError.invalid(path, url_path, "segment[0] may not be empty")]
    errors: list[FieldError] = []
    if not url_path.startswith("/"):
        errors.append(FieldError.invalid(path, url_path, "must start with a '/'"))
    for index, segment in enumerate(url_path[1:].removesuffix("/").split("/")):
        if not segment:
            errors.append(FieldError.invalid(path, url_path, f"segment[{index}] may not be empty"))
            continue
        errors += [
            FieldError.invalid(path, url_path, f"segment[{index}]: {detail}")
            for detail in names.dns_subdomain_errors(segment)
        ]
    return errors


def ca_bundle_errors(bundle: str, path: str) -> list[FieldError]:
    """Validate a CA bundle, in base64: PEM with at least one certificate."""
    try:
        pem = base64.b64decode(bundle)
    except binascii.Error:
        pem = b""
    blocks = list(pem_blocks(pem))
    if any(block.type == "CERTIFICATE" and not block.has_headers for block in blocks):
        return []
    why = (
        "no valid certificate authority data seen"
        if blocks
        else "unable to parse bytes as PEM block"
    )
    return [
        FieldError.invalid(path, bundle, f"unable to load root certificates: {why}"),
    ]
