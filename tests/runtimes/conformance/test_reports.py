"""Reports: each format holds the result, and nothing that a pod printed gets out of its place."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.errors import ConflictError
from moorage.runtimeclass.conformance import PROPERTIES, ClassResult
from moorage.runtimeclass.conformance.outcomes import NodeFacts, Outcome
from moorage.runtimeclass.conformance.results import judge, result_annotations, untested
from moorage.runtimes.conformance.runner import (
    REPORTS,
    html_report,
    junit_report,
    text_report,
    write_result,
)
from moorage.wire.client.resources import RUNTIME_CLASSES
from tests.clocks import FakeClock
from tests.controllers.memory import MemoryClient

HOSTILE = [
    "<script>alert(1)</script>",
    "</pre></td></table><img src=x onerror=alert(1)>",
    "]]></system-out><testcase/>",
    "\x1b[2J\x1b]0;title\x07",
    "\x00\x08\ufffe\ud800",
    "\u202eevil\u2066",
    '"><a href="javascript:alert(1)">',
    "&amp;&lt;&#0;",
    "x" * 100_000,
]


def result(output: str, error: str = "") -> ClassResult:
    outcome = Outcome(has_ended=True, exit_code=0, output=output, node="n1")
    failed = judge(PROPERTIES["runs"], outcome, NodeFacts(name="n1"))
    cut_off = judge(PROPERTIES["own-files"], Outcome(error=error or output), NodeFacts())
    return ClassResult(
        runtime_class="box",
        handler="h",
        tested_at="2026-01-01T00:00:00Z",
        tested="sha256:0",
        standards=("native",),
        conforms_to=(),
        properties=(failed, cut_off, untested(PROPERTIES["wasm-programs"], "no image")),
    )


async def test_a_result_is_written_though_another_write_comes_between() -> None:
    client: Any = MemoryClient(FakeClock())
    client.put(RUNTIME_CLASSES, {"metadata": {"name": "box"}, "handler": "h"})
    client.failures.append(("patch", "runtimeclasses", ConflictError("changed")))
    written = await write_result(client, result("out"))
    assert written.metadata.name == "box"
    stored = client.find(RUNTIME_CLASSES, "box")
    wanted = result_annotations(result("out"), {})
    assert stored["metadata"]["annotations"] == {
        name: value for name, value in wanted.items() if value is not None
    }


class Tags(HTMLParser):
    """Collects the tags of a page, and the attributes that could run something."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


ALLOWED_TAGS = {
    "html", "head", "meta", "title", "style", "body", "h1", "p", "strong", "table", "caption",
    "thead", "tbody", "tr", "th", "td", "pre",
}  # fmt: skip


def _check(output: str) -> None:
    tested = result(output)
    page = Tags(html_report(tested))
    assert page.tags == ALLOWED_TAGS
    assert page.attributes <= {"lang", "charset", "http-equiv", "content", "scope", "class"}
    suite = ElementTree.fromstring(junit_report(tested))
    assert [case.tag for case in suite] == ["testcase"] * 3
    assert (suite.get("failures"), suite.get("errors")) == ("1", "2")
    for form, write in REPORTS.items():
        text = write(tested)
        assert "\x1b" not in text, form
        assert len(text) < 60_000, form
        text.encode()
    assert json.loads(REPORTS["json"](tested))["properties"][0]["name"] == "runs"


@pytest.mark.parametrize("output", HOSTILE)
def test_a_hostile_pod_stays_inside_the_report(output: str) -> None:
    _check(output)


@given(st.text(st.characters(), max_size=200))
def test_any_output_stays_inside_the_report(output: str) -> None:
    _check(output)


def test_the_text_names_verdicts_and_what_the_class_conforms_to() -> None:
    lines = text_report(result("proof=other")).splitlines()
    assert lines[3] == "conforms to  nothing that it was tested for"
    assert lines[5].split()[:2] == ["failed", "runs"]
    assert lines[7].startswith("untested  wasm-programs")
