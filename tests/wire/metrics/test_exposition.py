from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.node.metrics import Metrics
from moorage.wire.metrics.exposition import exposition_text, family_lines, sample_line

# The grammar of the format, from its documentation and not from the writer.
_SAMPLE = re.compile(
    r'(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>(?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*",?)+)\})?'
    r" (?P<value>\S+)"
)
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\\n]|\\["\\n])*)"')
_ESCAPED = re.compile(r'\\(["\\n])')

Sample = tuple[str, dict[str, str], float]


def _read_sample(line: str) -> Sample:
    match = _SAMPLE.fullmatch(line)
    assert match is not None, line
    labels = {
        name: _ESCAPED.sub(lambda escape: "\n" if escape[1] == "n" else escape[1], text)
        for name, text in _LABEL.findall(match["labels"] or "")
    }
    return match["name"], labels, float(match["value"])


def _read(text: str) -> Iterator[tuple[str, str, list[Sample]]]:
    """Yield (name, type, samples) of each family: HELP, TYPE, then samples of that name."""
    assert text.endswith("\n")
    lines = text.removesuffix("\n").split("\n")
    while lines:
        head, type_line = lines.pop(0), lines.pop(0)
        assert head.startswith("# HELP ")
        name = head.split(" ", 3)[2]
        before, kind = type_line.rsplit(" ", 1)
        assert before == f"# TYPE {name}"
        samples = []
        while lines and not lines[0].startswith("#"):
            sample = _read_sample(lines.pop(0))
            assert re.fullmatch(rf"{name}(_bucket|_sum|_count)?", sample[0])
            samples.append(sample)
        yield name, kind, samples


@pytest.mark.parametrize(
    ("labels", "value", "line"),
    [
        ((), 0, "n 0"),
        ((("a", "1"), ("b", 'q"')), 3, 'n{a="1",b="q\\""} 3'),
        ((("a", "C:\\x\ny"),), 0.125, 'n{a="C:\\\\x\\ny"} 0.125'),
        ((), 8_123_456_789, "n 8123456789"),
        ((), 1_234_567.125, "n 1234567.125"),
    ],
)
def test_sample_lines(labels: tuple[tuple[str, str], ...], value: float, line: str) -> None:
    assert sample_line("n", labels, value) == line


def test_a_family_is_help_type_and_samples() -> None:
    lines = family_lines("n", "a\\b\nc", "gauge", [sample_line("n", (), 1)])
    assert exposition_text(lines) == "# HELP n a\\\\b\\nc\n# TYPE n gauge\nn 1\n"


_VALUES = st.integers(0, 2**63) | st.floats(allow_nan=False, allow_infinity=False)


@given(st.dictionaries(st.sampled_from("abc"), st.text()), _VALUES)
def test_a_sample_reads_back_as_it_was(labels: dict[str, str], value: float) -> None:
    assert _read_sample(sample_line("n", labels.items(), value)) == ("n", labels, float(value))


def test_the_agents_metrics_follow_the_format() -> None:
    metrics = Metrics()
    metrics.started_pods.count()
    metrics.run_sandbox.observe(0.3, runtime_handler='odd"name\\')
    families = {name: (kind, samples) for name, kind, samples in _read(metrics.text())}
    assert len(families) == len([name for name in vars(metrics) if not name.startswith("_")])
    assert families["kubelet_started_pods_total"] == (
        "counter",
        [("kubelet_started_pods_total", {}, 1.0)],
    )
    name = "kubelet_run_podsandbox_duration_seconds"
    kind, samples = families[name]
    handler = {"runtime_handler": 'odd"name\\'}
    assert kind == "histogram"
    assert samples[0] == (f"{name}_bucket", {**handler, "le": "0.005"}, 0.0)
    assert samples[-3:] == [
        (f"{name}_bucket", {**handler, "le": "+Inf"}, 1.0),
        (f"{name}_sum", handler, 0.3),
        (f"{name}_count", handler, 1.0),
    ]
