"""Reports of a conformance test: text, JSON, JUnit XML and HTML.

What a pod printed is data in all of them: bounded, printable and escaped by the results and the
libraries that write them. Source: the JUnit schema that CI systems read; HTML living standard.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from xml.etree import ElementTree

import msgspec

from moorage.runtimeclass.conformance.outcomes import printable
from moorage.runtimeclass.conformance.results import ClassResult, PropertyResult, Verdict

_STYLE = (
    "body{font-family:sans-serif;max-width:70em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse;width:100%}"
    "th,td{border:1px solid #999;padding:.4em;text-align:left;vertical-align:top}"
    "pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:0}"
    ".passed{color:#064}.failed{color:#900;font-weight:bold}.untested{color:#640}"
)


def text_report(result: ClassResult) -> str:
    """Return the report for people, in lines of a terminal."""
    return "\n".join(_lines(result)) + "\n"


def _lines(result: ClassResult) -> Iterator[str]:
    width = max((len(one.name) for one in result.properties), default=0)
    yield f"class        {result.runtime_class}"
    yield f"handler      {result.handler}"
    yield f"tested       {result.tested_at}, for {', '.join(result.standards)}"
    yield f"conforms to  {', '.join(result.conforms_to) or 'nothing that it was tested for'}"
    yield ""
    for one in result.properties:
        yield f"{one.verdict.value:<9} {one.name:<{width}}  {one.evidence}"


def json_report(result: ClassResult) -> str:
    """Return the whole result as JSON."""
    return msgspec.json.format(msgspec.json.encode(result), indent=2).decode() + "\n"


def junit_report(result: ClassResult) -> str:
    """Return the report as JUnit XML: a suite, with a case for each property.

    A property that failed is a failure, one that was not tested an error.
    """
    counts = {one: _count(result, one) for one in Verdict}
    suite = ElementTree.Element(
        "testsuite",
        name=printable(f"moorage.conformance.{result.runtime_class}"),
        tests=str(len(result.properties)),
        failures=str(counts[Verdict.FAILED]),
        errors=str(counts[Verdict.UNTESTED]),
        skipped="0",
        time=f"{sum(one.duration_s for one in result.properties):.3f}",
        timestamp=result.tested_at,
    )
    for one in result.properties:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=printable(result.runtime_class),
            name=one.name,
            time=f"{one.duration_s:.3f}",
        )
        if one.verdict is not Verdict.PASSED:
            tag = "failure" if one.verdict is Verdict.FAILED else "error"
            problem = ElementTree.SubElement(case, tag, message=printable(one.evidence))
            problem.text = printable(one.claim)
        if one.output:
            ElementTree.SubElement(case, "system-out").text = printable(one.output)
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def html_report(result: ClassResult) -> str:
    """Return the report as one HTML page without scripts or outside references."""
    title = html.escape(f"Conformance of {result.runtime_class}")
    rows = "".join(_html_row(one) for one in result.properties)
    conforms = html.escape(", ".join(result.conforms_to) or "nothing that it was tested for")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{title}</title><style>{_STYLE}</style></head><body>\n"
        f"<h1>{title}</h1>\n"
        f"<p>Handler {html.escape(result.handler)}, tested {html.escape(result.tested_at)} for "
        f"{html.escape(', '.join(result.standards))}. Conforms to: <strong>{conforms}</strong>.</p>"
        "\n<table><caption>Properties</caption><thead><tr><th scope=col>Property"
        "<th scope=col>Verdict<th scope=col>Claim<th scope=col>Evidence<th scope=col>Output"
        f"</tr></thead><tbody>\n{rows}</tbody></table></body></html>\n"
    )


def _html_row(one: PropertyResult) -> str:
    verdict = one.verdict.value
    return (
        f"<tr><th scope=row>{html.escape(one.name)}"
        f'<td class="{verdict}">{verdict}<td>{html.escape(one.claim)}'
        f"<td>{html.escape(one.evidence)}<td><pre>{html.escape(one.output)}</pre></tr>\n"
    )


def _count(result: ClassResult, verdict: Verdict) -> int:
    return sum(one.verdict is verdict for one in result.properties)


REPORTS: dict[str, Callable[[ClassResult], str]] = {
    "text": text_report,
    "json": json_report,
    "junit": junit_report,
    "html": html_report,
}
"""Format → writer, as `--format` names them."""
