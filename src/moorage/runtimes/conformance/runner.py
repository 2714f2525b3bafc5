"""Conformance test of a class: runs each probe once, judges every property, writes the result.

Properties that share a probe share its pod. Nothing that a probe does ends the test: a pod that is
refused, hangs or floods its log is a result.
"""

from __future__ import annotations

import asyncio
import html
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from xml.etree import ElementTree

import msgspec

from moorage.api.clock import Clock, format_time
from moorage.api.errors import ConflictError, NotFoundError
from moorage.api.runtime_group import RuntimeClass, RuntimeProfile
from moorage.runtimeclass.conformance.outcomes import NodeFacts, Outcome, printable
from moorage.runtimeclass.conformance.properties import (
    STANDARD_CLASSES,
    WASM_IMAGE,
    Probe,
    Property,
    StandardClass,
    properties_of,
    standard_class,
)
from moorage.runtimeclass.conformance.results import (
    ClassResult,
    PropertyResult,
    Verdict,
    annotation_patch,
    conforming,
    digest_of_tested,
    judge,
    untested,
)
from moorage.runtimes.conformance.probe_pods import ConformanceError, PodRunner, ProbeRunner
from moorage.wire.client.resources import NODES, RUNTIME_CLASSES, RUNTIME_PROFILES
from moorage.wire.client.rest import Client, PatchType

# Reports of a conformance test: text, JSON, JUnit XML and HTML.
#
# What a pod printed is data in all of them: bounded, printable and escaped by the results and the
# libraries that write them. Source: the JUnit schema that CI systems read; HTML living standard.

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


class ConformanceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a test. `timeout_s` is that of each probe, `parallel` how many run at once.

    `standard` is the standard class that is tested, empty for every one that can be. `wasm_image`
    is an image with a WebAssembly program that ends with status 0.
    """

    runtime_class: str
    standard: str = ""
    namespace: str = "default"
    node: str = ""
    image: str = "moorage.local/busybox:1"
    wasm_image: str = ""
    timeout_s: float = 60.0
    parallel: int = 2


class ConformanceTest:
    """One test of a class through an API server. `progress` receives a sentence per probe."""

    def __init__(
        self,
        client: Client,
        options: ConformanceOptions,
        clock: Clock,
        *,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._options = options
        self._clock = clock
        self._progress = progress
        self._run = secrets.token_hex(4)

    async def run(self) -> ClassResult:
        """Test and return the result. Writes nothing.

        Raises NotFoundError without the class, UnknownStandardError, ConformanceError when the
        probes' options cannot be, StatusError, UnreachableError.
        """
        options = self._options
        if options.parallel < 1 or not 1 <= options.timeout_s <= 3600:
            raise ConformanceError(
                "parallel must be at least 1, and the timeout between 1 and 3600 s"
            )
        standards = self._standards()
        tested = await self._client.get(RUNTIME_CLASSES, options.runtime_class)
        runner = PodRunner(
            self._client,
            run=self._run,
            runtime_class=options.runtime_class,
            namespace=options.namespace,
            node=options.node,
            timeout_s=options.timeout_s,
        )
        async with runner.watching():
            outcomes = await self._outcomes(runner, properties_of(standards))
        results = await self._judged(properties_of(standards), outcomes)
        return ClassResult(
            runtime_class=options.runtime_class,
            handler=tested.handler,
            tested_at=format_time(self._clock.now()),
            tested=digest_of_tested(tested, await read_profiles(self._client)),
            standards=tuple(standard.name for standard in standards),
            conforms_to=conforming(standards, results),
            properties=tuple(results),
        )

    def _standards(self) -> Sequence[StandardClass]:
        name = self._options.standard
        if name:
            return [standard_class(name)]
        # Without an image for them, WebAssembly programs cannot be tested.
        has_wasm = bool(self._options.wasm_image)
        return [one for one in STANDARD_CLASSES.values() if has_wasm or one.name != "wasm"]

    async def _outcomes(
        self, runner: ProbeRunner, properties: Iterable[Property]
    ) -> list[tuple[Probe, Outcome, float]]:
        probes: list[Probe] = []
        for one in properties:
            if one.probe not in probes and self._image(one.probe):
                probes.append(one.probe)
        slots = asyncio.Semaphore(self._options.parallel)

        async def run(number: int, probe: Probe) -> tuple[Probe, Outcome, float]:
            async with slots:
                began_s = self._clock.monotonic()
                name = f"moorage-conformance-{self._run}-{number}"
                outcome = await runner.run(name, probe, self._image(probe))
                self._progress(f"probe {number + 1}/{len(probes)}: {outcome.error or 'done'}")
                return probe, outcome, self._clock.monotonic() - began_s

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run(number, one)) for number, one in enumerate(probes)]
        return [task.result() for task in tasks]

    def _image(self, probe: Probe) -> str:
        return self._options.wasm_image if probe.image == WASM_IMAGE else self._options.image

    async def _judged(
        self, properties: Iterable[Property], outcomes: Sequence[tuple[Probe, Outcome, float]]
    ) -> list[PropertyResult]:
        nodes = {outcome.node for _, outcome, _ in outcomes if outcome.node}
        facts = {node: await node_facts(self._client, node) for node in sorted(nodes)}
        results = []
        for one in properties:
            found = next((entry for entry in outcomes if entry[0] == one.probe), None)
            if found is None:
                results.append(untested(one, "no image with a WebAssembly program was given"))
            else:
                _, outcome, duration_s = found
                node = facts.get(outcome.node, NodeFacts())
                results.append(judge(one, outcome, node, duration_s))
        return results


async def node_facts(client: Client, name: str) -> NodeFacts:
    """Return the facts of a node. Raises StatusError, UnreachableError."""
    status = (await client.get(NODES, name)).status
    return NodeFacts(
        name=name,
        kernel=status.node_info.kernel_version,
        boot_id=status.node_info.boot_id,
        addresses=tuple(address.address for address in status.addresses),
    )


async def read_profiles(client: Client) -> list[RuntimeProfile]:
    """Return all RuntimeProfiles; none on a cluster that lacks the kind.

    Raises StatusError, UnreachableError.
    """
    try:
        return (await client.list(RUNTIME_PROFILES)).items
    except NotFoundError:
        return []


async def write_result(client: Client, result: ClassResult) -> RuntimeClass:
    """Write a result on its class, beside those of other standards.

    Raises StatusError, UnreachableError.
    """
    while True:
        current = await client.get(RUNTIME_CLASSES, result.runtime_class)
        patch = annotation_patch(result, current)
        try:
            return await client.patch(
                RUNTIME_CLASSES, result.runtime_class, patch, kind=PatchType.MERGE
            )
        except ConflictError:
            # Another write came between, perhaps that of another test.
            continue
