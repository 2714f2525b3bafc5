"""Name validation: legal names, labels and keys.

Each check returns the errors worded as upstream, an empty list for a valid string, so that callers
can add a field path. Source: apimachinery `util/validation`, RFC 1123, RFC 1035.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping

from moorage.api.meta import Object, ObjectMeta, Raw
from moorage.api.remembered import remembered

# Namespaces. Source: core/v1 `Namespace`.


class NamespaceSpec(Object, frozen=True):
    finalizers: tuple[str, ...] = ()


class NamespaceStatus(Object, frozen=True):
    phase: str = ""
    conditions: tuple[Raw, ...] = ()


class Namespace(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NamespaceSpec = NamespaceSpec()
    status: NamespaceStatus = NamespaceStatus()


LABEL_MAX = 63
SUBDOMAIN_MAX = 253
ANNOTATIONS_MAX_BYTES = 256 * 1024

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_1035_LABEL = "[a-z]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_WILDCARD_SUBDOMAIN = rf"\*\.{_SUBDOMAIN}"
_SEARCH_LABEL = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SEARCH_DOMAIN = rf"{_SEARCH_LABEL}(\.{_SEARCH_LABEL})*"
_QUALIFIED_PART = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = f"({_QUALIFIED_PART})?"
_CONFIG_KEY = "[-._a-zA-Z0-9]+"
_PORT_NAME_CHARS = "[-a-z0-9]+"

_label_re = re.compile(_LABEL)
_dns_1035_label_re = re.compile(_DNS_1035_LABEL)
_subdomain_re = re.compile(_SUBDOMAIN)
_wildcard_subdomain_re = re.compile(_WILDCARD_SUBDOMAIN)
_search_domain_re = re.compile(_SEARCH_DOMAIN)
_qualified_re = re.compile(_QUALIFIED_PART)
_label_value_re = re.compile(_LABEL_VALUE)
_config_key_re = re.compile(_CONFIG_KEY)

_LABEL_MESSAGE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    f"for validation is '{_LABEL}')"
)
_DNS_1035_LABEL_MESSAGE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    f"regex used for validation is '{_DNS_1035_LABEL}')"
)
_SUBDOMAIN_MESSAGE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    rf"for validation is '{_LABEL}(\.{_LABEL})*')"
)
_WILDCARD_SUBDOMAIN_MESSAGE = (
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which "
    "must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric "
    f"character (e.g. '*.example.com', regex used for validation is '{_WILDCARD_SUBDOMAIN}')"
)
_SEARCH_DOMAIN_MESSAGE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' "
    "or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    f"for validation is '{_SEARCH_DOMAIN}')"
)
_QUALIFIED_MESSAGE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    f"validation is '{_QUALIFIED_PART}')"
)
_LABEL_VALUE_MESSAGE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    f"or '12345', regex used for validation is '{_LABEL_VALUE}')"
)
_CONFIG_KEY_MESSAGE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',"
    f"  or 'KEY_NAME',  or 'key-name', regex used for validation is '{_CONFIG_KEY}')"
)


def _too_long(limit: int) -> str:
    return f"must be no more than {limit} characters"


def _too_many_bytes(limit: int) -> str:
    return f"must be no more than {limit} bytes"


def dns_label_errors(value: str) -> list[str]:
    """Validate an RFC 1123 label: `my-name`, at most 63 characters."""
    errors = [] if len(value) <= LABEL_MAX else [_too_long(LABEL_MAX)]
    if not _label_re.fullmatch(value):
        # A well-formed subdomain gets the shorter hint: only its dots are wrong.
        dotted = _subdomain_re.fullmatch(value)
        errors.append("must not contain dots" if dotted else _LABEL_MESSAGE)
    return errors


def label_recommendation(details: list[str]) -> str:
    """Return the warning about an object's name that is no DNS label; `details` say why."""
    return (
        "metadata.name: this is used in Pod names and hostnames, which can result in surprising "
        f"behavior; a DNS label is recommended: [{' '.join(details)}]"
    )


def dns_1035_label_errors(value: str) -> list[str]:
    """Validate an RFC 1035 label: as RFC 1123, and it starts with a letter."""
    errors = [] if len(value) <= LABEL_MAX else [_too_long(LABEL_MAX)]
    if not _dns_1035_label_re.fullmatch(value):
        errors.append(_DNS_1035_LABEL_MESSAGE)
    return errors


def dns_subdomain_errors(value: str) -> list[str]:
    """Validate an RFC 1123 subdomain: `a.b-c.d`, at most 253 characters."""
    errors = [] if len(value) <= SUBDOMAIN_MAX else [_too_long(SUBDOMAIN_MAX)]
    if not _subdomain_re.fullmatch(value):
        errors.append(_SUBDOMAIN_MESSAGE)
    return errors


def wildcard_subdomain_errors(value: str) -> list[str]:
    """Validate a wildcard host, `*.` and a subdomain (RFC 1034 section 4.3.3)."""
    errors = [] if len(value) <= SUBDOMAIN_MAX else [_too_long(SUBDOMAIN_MAX)]
    if not _wildcard_subdomain_re.fullmatch(value):
        errors.append(_WILDCARD_SUBDOMAIN_MESSAGE)
    return errors


def search_domain_errors(value: str) -> list[str]:
    """Validate a DNS search path: a subdomain with underscores and a final dot allowed, or `.`."""
    domain = value.removesuffix(".")
    if not domain:
        return [] if value == "." else [_SEARCH_DOMAIN_MESSAGE]
    errors = [] if len(domain) <= SUBDOMAIN_MAX else [_too_long(SUBDOMAIN_MAX)]
    if not _search_domain_re.fullmatch(domain):
        errors.append(_SEARCH_DOMAIN_MESSAGE)
    return errors


def path_segment_errors(value: str) -> list[str]:
    """Validate a name as one segment of a URL path (for RBAC objects)."""
    if value in (".", ".."):
        return [f"may not be '{value}'"]
    return [f"may not contain '{char}'" for char in "/%" if char in value]


def qualified_name_errors(value: str) -> list[str]:
    """Validate a label or annotation key: `[prefix/]name`, name at most 63 characters."""
    return list(_qualified_name_errors(value))


@remembered(4096)
def _qualified_name_errors(value: str) -> tuple[str, ...]:
    """Return the errors. Keys, taints and resource names recur in nearly every object."""
    parts = value.split("/")
    if len(parts) > 2:
        return (
            "a qualified name "
            + _QUALIFIED_MESSAGE
            + " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
        )
    errors: list[str] = []
    if len(parts) == 2:
        prefix = parts[0]
        if not prefix:
            errors.append("prefix part must be non-empty")
        else:
            errors += [f"prefix part {complaint}" for complaint in dns_subdomain_errors(prefix)]
    name = parts[-1]
    if not name:
        errors.append("name part must be non-empty")
    elif len(name) > LABEL_MAX:
        errors.append(f"name part {_too_many_bytes(LABEL_MAX)}")
    if not _qualified_re.fullmatch(name):
        errors.append(f"name part {_QUALIFIED_MESSAGE}")
    return tuple(errors)


def label_value_errors(value: str) -> list[str]:
    """Validate a label value: empty, or like the name part of a key."""
    errors = [] if len(value) <= LABEL_MAX else [_too_many_bytes(LABEL_MAX)]
    if not _label_value_re.fullmatch(value):
        errors.append(_LABEL_VALUE_MESSAGE)
    return errors


def config_key_errors(value: str) -> list[str]:
    """Validate a key of ConfigMap or Secret data."""
    errors = [] if len(value) <= SUBDOMAIN_MAX else [_too_long(SUBDOMAIN_MAX)]
    if not _config_key_re.fullmatch(value):
        errors.append(_CONFIG_KEY_MESSAGE)
    elif value in (".", ".."):
        errors.append(f"must not be '{value}'")
    elif value.startswith(".."):
        errors.append("must not start with '..'")
    return errors


def port_name_errors(value: str) -> list[str]:
    """Validate a port name (IANA service name): at most 15 characters, one a letter, no `--`."""
    errors: list[str] = []
    if len(value) > 15:
        errors.append(_too_long(15))
    if not re.fullmatch(_PORT_NAME_CHARS, value):
        errors.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", value):
        errors.append("must contain at least one letter (a-z)")
    if "--" in value:
        errors.append("must not contain consecutive hyphens")
    if value and (value[0] == "-" or value[-1] == "-"):
        errors.append("must not begin or end with a hyphen")
    return errors


def env_name_errors(value: str) -> list[str]:
    """Validate an environment variable name: printable ASCII except `=` (since 1.34)."""
    if not value:
        return ["environment variable name must not be empty"]
    if all(" " <= char <= "~" and char != "=" for char in value):
        return []
    return [
        "a valid environment variable name must consist only of printable ASCII characters "
        "other than '='"
    ]


def annotations_size(annotations: Mapping[str, str]) -> int:
    """Return the bytes that count against the 256 KiB limit on annotations."""
    return sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())


# Without vowels and easily confused characters, as everywhere in Kubernetes, to avoid words.
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_GENERATED_BASE_MAX = LABEL_MAX - _SUFFIX_LENGTH


def random_suffix(length: int = _SUFFIX_LENGTH) -> str:
    return "".join(secrets.choice(_SUFFIX_ALPHABET) for _ in range(length))


def generate_name(base: str) -> str:
    """Generate a name for `metadata.generateName`: base cut to 58 characters, random suffix."""
    return base[:_GENERATED_BASE_MAX] + random_suffix()
