"""String formats of custom resource schemas. Unknown formats accept any value.

Source: API docs "Validation" (supported formats), kube-openapi `strfmt`.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from datetime import date
from email.utils import parseaddr
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from moorage.api import names

_MEMORY_BYTES = 1 << 20
_EMAIL_CHARS = 998
_FLOAT32_MAX = 3.4028234663852886e38
_SCALA_UNIT = (
    r"ns|nano\w*|us|µs|micro\w*|ms|milli\w*|s|sec\w*|m|min\w*|h|hr|hour\w*|d|day\w*"
    r"|w|wk|week\w*"
)
_HEX = "[0-9a-fA-F]"

_GO_WORDS = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}
"""Messages of RE2 in the words of Go's parser, where they differ."""


class PatternError(ValueError):
    """A pattern does not compile; the text says why, in the words of Go's parser."""


def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Return whether a text contains a match, as a function. Raises PatternError."""
    # Imported with the first pattern: most servers never have one.
    import re2

    try:
        compiled = re2.compile(pattern, _options())
    except re2.error as error:
        raise PatternError(_in_go_words(error)) from error
    return lambda text: compiled.search(text) is not None


def _in_go_words(error: Exception) -> str:
    why = error.args[0] if error.args else ""
    text = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
    problem, _, part = text.partition(": ")
    return f"error parsing regexp: {_GO_WORDS.get(problem, problem)}: `{part}`"


@lru_cache(maxsize=1)
def _options() -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_BYTES
    return options


_INT_RANGES = {"int32": 2**31, "int64": 2**63}


def fits_format(format_: str, value: Any) -> bool:
    """Return whether a value fits a format; formats of other types than the value's do."""
    if isinstance(value, bool):
        return True
    if isinstance(value, str):
        check = _CHECKS.get(format_.replace("-", ""))
        return check is None or check(value)
    if isinstance(value, int | float):
        return _fits_number(format_, value)
    return True


def _fits_number(format_: str, value: float) -> bool:
    if format_ in _INT_RANGES:
        limit = _INT_RANGES[format_]
        return -limit <= value < limit
    return format_ != "float" or abs(value) <= _FLOAT32_MAX


def _matches(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern)
    return lambda text: compiled.fullmatch(text) is not None


def _is_uri(text: str) -> bool:
    """Return whether a text is an absolute URI or an absolute path, without a control character."""
    if not text or re.search(r"[\x00-\x20\x7f]", text):
        return False
    try:
        return text.startswith("/") or bool(urlsplit(text).scheme)
    except ValueError:
        return False


def _is_email(text: str) -> bool:
    if len(text) > _EMAIL_CHARS:
        return False
    address = parseaddr(text)[1]
    local, at, domain = address.rpartition("@")
    return bool(local and at and domain)


def _is_ip(version: int) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            return ipaddress.ip_address(text).version == version
        except ValueError:
            return False

    return check


def _is_cidr(text: str) -> bool:
    if "/" not in text:
        return False
    try:
        ipaddress.ip_interface(text)
    except ValueError:
        return False
    return text.rpartition("/")[2].isdecimal()


def _is_date(text: str) -> bool:
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


_CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d)(?:.\d+)?(?:z|[+-]\d\d:\d\d)")


def _is_date_time(text: str) -> bool:
    day, _, clock = text.lower().partition("t")
    match = _CLOCK.fullmatch(clock)
    if match is None or not _is_date(day):
        return False
    hours, minutes, seconds = match.groups()
    return hours <= "23" and minutes <= "59" and seconds <= "59"


_GO_DURATION = re.compile(r"[+-]?(?:0|(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+)")
_SCALA_DURATION = re.compile(rf"\d+\s*(?:{_SCALA_UNIT})(?![a-zµ])", re.IGNORECASE)


def _is_duration(text: str) -> bool:
    return bool(_GO_DURATION.fullmatch(text) or _SCALA_DURATION.search(text))


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _is_isbn10(text: str) -> bool:
    digits = re.sub(r"[\s-]", "", text)
    if not re.fullmatch(r"\d{9}[\dXx]", digits):
        return False
    values = [10 if digit in "Xx" else int(digit) for digit in digits]
    return sum((10 - index) * value for index, value in enumerate(values)) % 11 == 0


def _is_isbn13(text: str) -> bool:
    digits = re.sub(r"[\s-]", "", text)
    if not re.fullmatch(r"\d{13}", digits):
        return False
    return sum((1, 3)[index % 2] * int(digit) for index, digit in enumerate(digits)) % 10 == 0


def _is_credit_card(text: str) -> bool:
    digits = re.sub(r"\D", "", text)
    if not _CARD(digits):
        return False
    doubled = [int(digit) * (1 + index % 2) for index, digit in enumerate(reversed(digits))]
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0


_CARD = _matches(
    r"4\d{12}(?:\d{3})?|5[1-5]\d{14}|6(?:011|5\d\d)\d{12}|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}"
    r"|(?:2131|1800|35\d{3})\d{11}"
)


def _uuid(third: str, fourth: str) -> Callable[[str], bool]:
    return _matches(f"{_HEX}{{8}}-?{_HEX}{{4}}-?{third}-?{fourth}-?{_HEX}{{12}}")


_CHECKS: dict[str, Callable[[str], bool]] = {
    "bsonobjectid": _matches(f"{_HEX}{{24}}"),
    "uri": _is_uri,
    "email": _is_email,
    "hostname": _matches(r"(?=.{1,255}$)[\w](?:[\w-]{0,61}[\w])?(?:\.[\w](?:[\w-]{0,61}[\w])?)*"),
    "ipv4": _is_ip(4),
    "ipv6": _is_ip(6),
    "cidr": _is_cidr,
    "mac": _matches(
        f"(?:{_HEX}{{2}}[:-]){{5}}{_HEX}{{2}}|(?:{_HEX}{{4}}\\.){{2}}{_HEX}{{4}}"
        f"|(?:{_HEX}{{2}}[:-]){{7}}{_HEX}{{2}}|(?:{_HEX}{{4}}\\.){{3}}{_HEX}{{4}}"
    ),
    "uuid": _uuid(f"{_HEX}{{4}}", f"{_HEX}{{4}}"),
    "uuid3": _uuid(f"3{_HEX}{{3}}", f"{_HEX}{{4}}"),
    "uuid4": _uuid(f"4{_HEX}{{3}}", f"[89abAB]{_HEX}{{3}}"),
    "uuid5": _uuid(f"5{_HEX}{{3}}", f"[89abAB]{_HEX}{{3}}"),
    "isbn": lambda text: _is_isbn10(text) or _is_isbn13(text),
    "isbn10": _is_isbn10,
    "isbn13": _is_isbn13,
    "creditcard": _is_credit_card,
    "ssn": _matches(r"\d{3}[- ]?\d{2}[- ]?\d{4}"),
    "hexcolor": _matches(f"#?(?:{_HEX}{{3}}|{_HEX}{{6}})"),
    "rgbcolor": _matches(
        r"rgb\(\s*(?:25[0-5]|2[0-4]\d|1?\d?\d)\s*,\s*(?:25[0-5]|2[0-4]\d|1?\d?\d)\s*,"
        r"\s*(?:25[0-5]|2[0-4]\d|1?\d?\d)\s*\)"
    ),
    "byte": _is_base64,
    "date": _is_date,
    "duration": _is_duration,
    "datetime": _is_date_time,
    "k8sshortname": lambda text: not names.dns_label_errors(text),
    "k8slongname": lambda text: not names.dns_subdomain_errors(text),
}
