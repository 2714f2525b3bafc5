"""How a webhook is called."""

from __future__ import annotations

import base64

import pytest

from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.webhook_client import ca_bundle_errors, client_errors

FORM = "; desired format: https://host[/path]"
SERVICE = {"name": "s", "namespace": "n", "port": 443}
NAME = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    r"for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


@pytest.mark.parametrize(
    ("client", "errors"),
    [
        ({}, ["c: Required value: exactly one of url or service is required"]),
        ({"url": "https://a", "service": SERVICE},
         ["c: Required value: exactly one of url or service is required"]),
        ({"url": "https://a.b:80/c"}, []),
        ({"url": ""},
         [f"c.url: Invalid value: \"\": 'https' is the only allowed URL scheme{FORM}",
          f'c.url: Invalid value: "": host must be specified{FORM}']),
        ({"url": "http://u:p@h/?q=1#f"},
         [f"c.url: Invalid value: \"http\": 'https' is the only allowed URL scheme{FORM}",
          'c.url: Invalid value: "u:p": user information is not permitted in the URL',
          'c.url: Invalid value: "f": fragments are not permitted in the URL',
          'c.url: Invalid value: "q=1": query parameters are not permitted in the URL']),
        ({"url": "https://h:x"},
         ['c.url: Required value: url must be a valid URL: parse "https://h:x": invalid port ":x" '
          f"after host{FORM}"]),
        ({"url": "://h"},
         ['c.url: Required value: url must be a valid URL: parse "://h": missing protocol '
          f"scheme{FORM}"]),
        ({"url": "https://h/%zz"},
         ['c.url: Required value: url must be a valid URL: parse "https://h/%zz": invalid URL '
          f'escape "%zz"{FORM}']),
        ({"url": "https://[::1"},
         ["c.url: Required value: url must be a valid URL: parse \"https://[::1\": missing ']' in "
          f"host{FORM}"]),
        ({"service": SERVICE | {"path": "/a/b/"}}, []),
        ({"service": {"name": "", "namespace": "n", "port": 0}},
         ["c.service.namespace: Required value",
          "c.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, "
          "inclusive"]),
        ({"service": {"name": "s", "port": 1}}, ["c.service.name: Required value"]),
        ({"service": SERVICE | {"path": "//"}},
         ['c.service.path: Invalid value: "//": segment[0] may not be empty']),
        ({"service": SERVICE | {"path": "ab//C"}},
         ['c.service.path: Invalid value: "ab//C": must start with a \'/\'',
          'c.service.path: Invalid value: "ab//C": segment[1] may not be empty',
          f'c.service.path: Invalid value: "ab//C": segment[2]: {NAME}']),
    ],
)  # fmt: skip
def test_client(client: Obj, errors: list[str]) -> None:
    assert [str(error) for error in client_errors(client, "c")] == errors


@pytest.mark.parametrize(
    ("pem", "says"),
    [
        (b"x", "unable to parse bytes as PEM block"),
        (b"-----BEGIN KEY-----\nMA==\n-----END KEY-----\n",
         "no valid certificate authority data seen"),
        (b"-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n", None),
        (b"-----BEGIN A-----\n-----END B-----\n"
         b"-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n", None),
        (b"-----BEGIN CERTIFICATE-----\nMA==\n", "unable to parse bytes as PEM block"),
        (b"-----BEGIN X-----\n" * 100_000, "unable to parse bytes as PEM block"),
    ],
)  # fmt: skip
def test_ca_bundle(pem: bytes, says: str | None) -> None:
    bundle = base64.b64encode(pem).decode()
    errors = [str(error) for error in ca_bundle_errors(bundle, "b")]
    assert len(errors) == (says is not None)
    if says is not None:
        assert errors[0].startswith('b: Invalid value: "')
        assert errors[0].endswith(f": unable to load root certificates: {says}")
