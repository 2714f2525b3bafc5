"""Functions of expressions, and errors in the words that clients know from Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.cel.environment import make_environment
from moorage.apiserver.cel.library.declaring import Type
from moorage.apiserver.cel.program import CompileError, EvaluationError, Program, type_name

ENVIRONMENT = make_environment({"self": Type.DYN})
SELF = {"l": [1, 2, 3], "s": "a1b22", "f": 1.5, "m": {"k": "v"}, "many": list(range(200))}


def evaluate(expression: str) -> Any:
    return Program(ENVIRONMENT, expression).evaluate({"self": SELF})


@pytest.mark.parametrize(
    "expression",
    [
        # The language, and the extensions that Kubernetes has on.
        "self.l.all(x, x > 0)",
        "self.?absent.orValue(3) == 3",
        "[1, 2].transformList(i, v, v * 2) == [2, 4]",
        "sets.contains(self.l, [1])",
        "math.greatest(1, 2) == 2",
        "'%d-%s'.format([1, 'x']) == '1-x'",
        "cel.bind(x, self.s, x + x) == 'a1b22a1b22'",
        "self.s.indexOf('b') == 2",
        "duration('1h') > duration('30m')",
        # Lists.
        "self.l.sum() == 6",
        "[].sum() == 0",
        "[duration('1m'), duration('1h')].sum() == duration('61m')",
        "[timestamp('2026-01-01T00:00:00Z')].max() == timestamp('2026-01-01T00:00:00Z')",
        "self.l.isSorted() && ![2, 1].isSorted() && ['a', 'b'].isSorted()",
        "[1.5, 2.5].max() == 2.5",
        "self.l.min() == 1",
        # Regular expressions.
        "self.s.find('[0-9]+') == '1'",
        "self.s.find('x') == ''",
        "self.s.findAll('[0-9]+') == ['1', '22']",
        "self.s.findAll('[0-9]', 2) == ['1', '2']",
        "self.s.findAll('[0-9]', 0) == []",
        # URLs.
        "url('https://u:p@a.com:80/a?k=a&l=b&l=c').getQuery() == {'k': ['a'], 'l': ['b', 'c']}",
        "url('https://example.com/path?').getQuery().size() == 0",
        "url('https://[::1]:80/').getHost() == '[::1]:80'",
        "url('https://[::1]:80/').getHostname() == '::1'",
        "url('https://example.com:80/').getHostname() == 'example.com'",
        "url('https://example.com:80/').getPort() == '80'",
        "url('https://example.com/').getPort() == ''",
        "url('https://example.com/path with spaces/').getEscapedPath() == '/path%20with%20spaces/'",
        "url('https://example.com').getEscapedPath() == ''",
        "url('/path').getScheme() == '' && url('/path').getHost() == ''",
        "isURL('/absolute-path') && !isURL('../relative') && !isURL('https://a:b:c/')",
        "!isURL('https://a:b/') && !isURL('no host')",
        # Quantities.
        "quantity('50k').add(quantity('20k')) == quantity('70k')",
        "quantity('50k').add(20).sub(quantity('100k')).sub(-50000) == quantity('20')",
        "quantity('1000m') == quantity('1')",
        "quantity('200M').compareTo(quantity('0.2G')) == 0",
        "quantity('50M').compareTo(quantity('50Mi')) == -1",
        "quantity('50Mi').isGreaterThan(quantity('50M'))",
        "quantity('1').isLessThan(quantity('2'))",
        "quantity('50k').asInteger() == 50000",
        "!quantity('1.5').isInteger() && quantity('50000000G').isInteger()",
        "quantity('1.5').asApproximateFloat() == 1.5",
        "quantity('-1').sign() == -1 && quantity('0').sign() == 0 && quantity('1').sign() == 1",
        "isQuantity('1.3Gi') && !isQuantity('200K') && !isQuantity('Three')",
        # Versions.
        "semver('1.2.3').major() == 1 && semver('1.2.3').minor() == 2",
        "semver('1.2.3-a.1+b').patch() == 3",
        "semver('1.2.3').compareTo(semver('1.2.3')) == 0 && semver('1.2.3+a') == semver('1.2.3')",
        "semver('1.2.3').isLessThan(semver('1.10.0'))",
        "semver('1.0.0').isGreaterThan(semver('1.0.0-rc.1'))",
        "semver('1.0.0-alpha.1').isLessThan(semver('1.0.0-alpha.beta'))",
        "semver('1.0.0-alpha').isLessThan(semver('1.0.0-alpha.1'))",
        "semver('1.0.0-2').isLessThan(semver('1.0.0-11'))",
        "semver('v01.1', true) == semver('1.1.0')",
        "isSemver('1.0.0') && !isSemver('v1.0') && isSemver('v1.0', true) && !isSemver('1.0.0-01')",
        "!isSemver('1.0-a', true) && !isSemver('99999999999999999999999.0.0')",
        # Formats.
        "format.dns1123Label().validate('a-b') == optional.none()",
        "format.dns1123Label().validate('A').hasValue()",
        "format.dns1123Label().validate('A').value()[0].startsWith('a lowercase RFC 1123 label')",
        "!format.dns1123LabelPrefix().validate('a-').hasValue()",
        "!format.dns1123Subdomain().validate('a.b').hasValue()",
        "!format.qualifiedName().validate('a.b/c').hasValue()",
        "format.labelValue().validate('a b').hasValue()",
        "!format.uri().validate('https://a/b').hasValue() && format.uri().validate('a').hasValue()",
        "!format.uuid().validate('123e4567-e89b-12d3-a456-426614174000').hasValue()",
        "format.uuid().validate('1').value() == ['does not match the UUID format']",
        "!format.byte().validate('aGk=').hasValue() && format.byte().validate('!').hasValue()",
        "!format.date().validate('2026-11-24').hasValue()",
        "format.date().validate('2026-13-24').value() == ['invalid date']",
        "!format.datetime().validate('2026-11-24T10:00:00Z').hasValue()",
        "format.datetime().validate('2026-11-24').value() == ['invalid datetime']",
        "format.named('uuid').value().validate('x').hasValue()",
        "!format.named('absent').hasValue()",
        # Positions in lists and in texts.
        "[1, 2, 2].indexOf(2) == 1 && [1, 2, 2].lastIndexOf(2) == 2 && [1].indexOf('1') == -1",
        "self.l.indexOf(3) == 2 && self.l.indexOf(true) == -1 && [[1], [2]].indexOf([2]) == 1",
        "'abcabc'.indexOf('c', 3) == 5 && 'abcabc'.lastIndexOf('b', 3) == 1",
        # Addresses.
        "ip('127.0.0.1').family() == 4 && ip('::1').family() == 6",
        "isIP('::1') && !isIP('127.0.0.256') && !isIP('::ffff:1.2.3.4') && !isIP('fe80::1%eth0')",
        "ip.isCanonical('2001:db8::abcd') && !ip.isCanonical('2001:DB8::ABCD')",
        "ip('0.0.0.0').isUnspecified() && ip('::1').isLoopback()",
        "ip('224.0.0.1').isLinkLocalMulticast() && !ip('224.0.1.1').isLinkLocalMulticast()",
        "ip('ff02::1').isLinkLocalMulticast() && !ip('fd00::1').isLinkLocalMulticast()",
        "ip('fe80::1').isLinkLocalUnicast() && !ip('192.168.0.1').isLinkLocalUnicast()",
        "ip('192.168.0.1').isGlobalUnicast() && !ip('255.255.255.255').isGlobalUnicast()",
        "!ip('ff00::1').isGlobalUnicast() && !ip('fe80::1').isGlobalUnicast()",
        "cidr('192.168.0.0/24').containsIP('192.168.0.1')",
        "!cidr('192.168.0.0/24').containsIP(ip('192.168.1.1'))",
        "cidr('192.168.0.0/16').containsCIDR('192.168.10.0/24')",
        "!cidr('192.168.10.0/24').containsCIDR(cidr('192.168.0.0/16'))",
        "cidr('192.168.0.1/24').ip() == ip('192.168.0.1')",
        "cidr('192.168.0.1/24').masked() == cidr('192.168.0.0/24')",
        "cidr('192.168.0.1/24') != cidr('192.168.0.0/24')",
        "cidr('::1/128').prefixLength() == 128",
        "!isCIDR('::1/129') && !isCIDR('10.0.0.0') && !isCIDR('10.0.0.0/08')",
    ],
)  # fmt: skip
def test_a_function_of_kubernetes(expression: str) -> None:
    assert evaluate(expression) is True


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("self.zz", "no such key: zz"),
        ("self.m['x']", "no such key: x"),
        ("self.l[9]", "index out of bounds: 9"),
        ("1 / 0", "division by zero"),
        ("9223372036854775807 + 1", "integer overflow"),
        ("self.f + 1", "no such overload"),
        ("self.l.startsWith('a')", "no such overload"),
        ("self.s.x", "no such overload"),
        ("quantity(self.l)", "no such overload"),
        ("[].min()", "min called on empty list"),
        ("[].max()", "max called on empty list"),
        ("quantity('1.5').asInteger()", "cannot convert value to integer"),
        ("ip('::ffff:1.2.3.4')", 'IPv4-mapped IPv6 address "::ffff:1.2.3.4" is not allowed'),
        ("ip('fe80::1%eth0')", 'IP address "fe80::1%eth0" with zone value is not allowed'),
        (
            "self.many.all(x, self.many.all(y, x + y >= 0))",
            "operation cancelled: actual cost limit exceeded",
        ),
    ],
)
def test_an_expression_without_a_value(expression: str, error: str) -> None:
    with pytest.raises(EvaluationError) as failed:
        evaluate(expression)
    assert str(failed.value) == error
    assert failed.value.is_limit == error.startswith("operation")


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        (
            "other == 1",
            "ERROR: <input>:1:1: undeclared reference to 'other' (in container '')\n"
            " | other == 1\n | ^",
        ),
        (
            "'a' > 1",
            "ERROR: <input>:1:5: found no matching overload for '_>_' applied to "
            "'(string, int)'\n | 'a' > 1\n | ....^",
        ),
        ("self.x = 1", "ERROR: <input>:1:8: Syntax error: token recognition error at: '= '"),
        ("(" * 5_000, "Expression recursion limit exceeded. limit: 32"),
        ("x" * 200_000, "expression size exceeds codepoint limit."),
    ],
)
def test_an_expression_that_does_not_compile(expression: str, error: str) -> None:
    with pytest.raises(CompileError) as failed:
        Program(ENVIRONMENT, expression)
    assert str(failed.value).startswith(error)


def test_the_type_of_a_value_is_known_unless_the_input_decides_it() -> None:
    assert Program(ENVIRONMENT, "self.s.size() > 1").returns(Type.BOOL)
    assert not Program(ENVIRONMENT, "self.s.size()").returns(Type.BOOL)
    assert Program(ENVIRONMENT, "self.s").returns(Type.BOOL)


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("1", "int"), ("1u", "uint"), ("1.5", "double"), ("true", "bool"), ("'a'", "string"),
        ("b'a'", "bytes"), ("null", "null_type"), ("self", "dyn"), ("[1]", "list(int)"),
        ("[]", "list(dyn)"), ("[[null]]", "list(list(null_type))"),
        ("{'a': 1.5}", "map(string, double)"), ("{1: [self]}", "map(int, list(dyn))"),
        ("duration('1s')", "google.protobuf.Duration"),
        ("[timestamp('2026-01-01T00:00:00Z')]", "list(google.protobuf.Timestamp)"),
        ("{'a': duration('1s')}", "map(string, google.protobuf.Duration)"),
        ("quantity('1')", "kubernetes.Quantity"), ("[ip('::1')]", "list(kubernetes.IP)"),
    ],
)  # fmt: skip
def test_a_type_is_named_as_in_cel_go(expression: str, name: str) -> None:
    assert type_name(Program(ENVIRONMENT, expression).type) == name


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("self.m[1]", "no such key: 1"),
        ("self.l[-1]", "index out of bounds: -1"),
        ("5 % 0", "modulus by zero"),
        ("1u - 2u", "unsigned integer overflow"),
        ("int('x')", "cannot convert string to int"),
        ("self.s < 1", "no such overload"),
    ],
)
def test_an_error_has_the_words_of_cel_go(expression: str, error: str) -> None:
    with pytest.raises(EvaluationError) as failed:
        evaluate(expression)
    assert str(failed.value).startswith(error)


DATES = ("2026-02-28", "2026-02-30", "26-02-28", "2026-2-28", "20260228", "2026-02-28T00:00:00Z")
MOMENTS = (
    "2026-02-28T10:00:00Z", "2026-02-28t10:00:00z", "2026-02-28T10:00:00.5+01:00",
    "2026-02-30T10:00:00Z", "2026-02-28T25:00:00Z", "2026-02-28T10:00:00", "2026-02-28",
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "texts", "valid"),
    [
        ("dns1123Label", ("a", "a-b", "A", "-a", "a.b", ""), ("a", "a-b")),
        ("dns1123LabelPrefix", ("a-", "-a", "a."), ("a-",)),
        ("dns1123Subdomain", ("a.b", "a..b", "a_b"), ("a.b",)),
        ("dns1123SubdomainPrefix", ("a.b-", "a_b"), ("a.b-",)),
        ("dns1035Label", ("a", "1a", "a-1"), ("a", "a-1")),
        ("dns1035LabelPrefix", ("a-", "1a"), ("a-",)),
        ("qualifiedName", ("a/b", "a/b/c", "A_b"), ("a/b", "A_b")),
        ("labelValue", ("", "a", "a b"), ("", "a")),
        ("uri", ("https://a/b", "/a", "a"), ("https://a/b", "/a")),
        ("uuid", ("123e4567-e89b-12d3-a456-426614174000", "123e4567"),
         ("123e4567-e89b-12d3-a456-426614174000",)),
        ("byte", ("aGk=", "aGk", "!"), ("aGk=",)),
        ("date", DATES, DATES[:1]),
        ("datetime", MOMENTS, (*MOMENTS[:3], MOMENTS[5])),
    ],
)  # fmt: skip
def test_a_format_holds_for_some_texts(
    name: str, texts: tuple[str, ...], valid: tuple[str, ...]
) -> None:
    holds = [
        text for text in texts if not evaluate(f"format.{name}().validate('{text}').hasValue()")
    ]
    assert holds == list(valid)
    assert evaluate(f"format.named('{name}').value() == format.{name}()") is True
