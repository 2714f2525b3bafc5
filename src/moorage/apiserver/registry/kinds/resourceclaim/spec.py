"""Device claims: what claims and claim templates ask of devices.

Defaults, preparation and validation of `ResourceClaimSpec`. Source: resource validation of
Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.declared import (
    DeclaredError,
    itself,
    list_errors,
    long_name_errors,
)
from moorage.apiserver.registry.validation.devices import (
    configuration_errors,
    declared_attribute_errors,
    default_parameters,
    default_tolerations,
    label_errors,
    selector_errors,
    toleration_errors,
)

ITEMS_MAX = 32
"""The largest number of requests, constraints, configurations and results."""

_ALTERNATIVES_MAX = 8
_MODES = ("All", "ExactCount")
_ONE_KIND = "exactly one of `exactly` or `firstAvailable` is required"
_BAD_REFERENCE = (
    "must be the name of a request in the claim or the name of a request and a subrequest "
    "separated by '/'"
)


def default_claim_spec(spec: Obj) -> None:
    """Set the API defaults of a claim's specification."""
    for request in _all_requests(spec):
        if not request.get("allocationMode"):
            request["allocationMode"] = "ExactCount"
        if request["allocationMode"] == "ExactCount" and not request.get("count"):
            request["count"] = 1
        default_tolerations(request)
    default_parameters(spec.get("devices", {}).get("config", []))


def drop_disabled_claim_fields(spec: Obj, old: Obj | None = None) -> None:
    """Remove derived attributes, whose feature is off, unless the old claim has some."""
    if any(request.get("derivedAttributes") for request in _all_requests(old or {})):
        return
    for request in _all_requests(spec):
        request.pop("derivedAttributes", None)


def _all_requests(spec: Obj) -> Iterator[Obj]:
    """Yield the requests: the exact ones and every alternative."""
    for request in spec.get("devices", {}).get("requests", ()):
        if "exactly" in request:
            yield request["exactly"]
        yield from request.get("firstAvailable", ())


def claim_spec_errors(spec: Obj, path: str) -> Iterator[FieldError]:
    """Validate the specification of a claim."""
    claim, at = spec.get("devices", {}), f"{path}.devices"
    known = request_names(spec)

    def constraint_errors(constraint: Obj, path: str) -> Iterator[FieldError]:
        yield from reference_errors(constraint, path, known)
        yield from _attribute_errors(constraint, path)

    def claim_configuration_errors(configuration: Obj, path: str) -> Iterator[FieldError]:
        yield from reference_errors(configuration, path, known)
        yield from configuration_errors(configuration, path)

    yield from list_errors(
        claim.get("requests", []), f"{at}.requests", ITEMS_MAX, _request_errors, key=_name
    )
    lists: tuple[tuple[str, Callable[[Obj, str], Iterator[FieldError]]], ...] = (
        ("constraints", constraint_errors),
        ("config", claim_configuration_errors),
    )
    for field, item_errors in lists:
        yield from list_errors(claim.get(field, []), f"{at}.{field}", ITEMS_MAX, item_errors)


def request_names(spec: Obj) -> set[str]:
    """Return the names that constraints may refer to: `request`, and `request/alternative`."""
    known: set[str] = set()
    for request in spec.get("devices", {}).get("requests", ()):
        known.add(_name(request))
        for alternative in request.get("firstAvailable", ()):
            known.add(f"{_name(request)}/{_name(alternative)}")
    return known


def reference_errors(holder: Obj, path: str, known: set[str]) -> Iterator[FieldError]:
    """Validate the requests that a constraint or configuration is about."""

    def item_errors(reference: str, path: str) -> Iterator[FieldError]:
        return one_reference_errors(reference, path, known)

    yield from list_errors(
        holder.get("requests", []), f"{path}.requests", ITEMS_MAX, item_errors, key=itself
    )


def one_reference_errors(reference: str, path: str, known: set[str]) -> Iterator[FieldError]:
    """Validate the name of a request, or of one of its alternatives."""
    segments = reference.split("/")
    if len(segments) <= 2:
        for segment in segments:
            yield from label_errors(segment, path)
    if len(segments) > 2 or reference not in known:
        yield FieldError.invalid(path, reference, _BAD_REFERENCE)


def _name(named: Obj) -> str:
    return str(named.get("name", ""))


def _request_errors(request: Obj, path: str) -> Iterator[FieldError]:
    yield from label_errors(_name(request), f"{path}.name")
    exact, alternatives = request.get("exactly"), request.get("firstAvailable", [])
    if exact is None and not alternatives:
        yield FieldError.required(path, _ONE_KIND)
    elif exact is not None and alternatives:
        yield FieldError.invalid(path, None, f"{_ONE_KIND}, but multiple fields are set")
    elif exact is not None:
        at = f"{path}.exactly"
        yield from long_name_errors(
            exact.get("deviceClassName", ""), f"{at}.deviceClassName", FieldError
        )
        yield from _asked_errors(exact, at)
    else:
        yield from list_errors(
            alternatives,
            f"{path}.firstAvailable",
            _ALTERNATIVES_MAX,
            _alternative_errors,
            key=_name,
        )


def _alternative_errors(request: Obj, path: str) -> Iterator[FieldError]:
    yield from label_errors(_name(request), f"{path}.name")
    yield from long_name_errors(request.get("deviceClassName", ""), f"{path}.deviceClassName")
    yield from _asked_errors(request, path)


def _asked_errors(request: Obj, path: str) -> Iterator[FieldError]:
    """Validate what exact requests and alternatives have in common."""
    yield from selector_errors(request, path)
    mode, count = request.get("allocationMode", ""), request.get("count", 0)
    if mode not in _MODES:
        yield DeclaredError.not_supported(f"{path}.allocationMode", mode, _MODES)
    elif mode == "All" and count != 0:
        yield FieldError.invalid(
            f"{path}.count", count, "must not be specified when allocationMode is 'All'"
        )
    elif mode == "ExactCount" and count <= 0:
        yield FieldError.invalid(f"{path}.count", count, "must be greater than zero")
    yield from toleration_errors(request, path)


def _attribute_errors(constraint: Obj, path: str) -> Iterator[FieldError]:
    fields = [field for field in ("matchAttribute", "distinctAttribute") if field in constraint]
    for field in fields:
        yield from declared_attribute_errors(constraint[field], f"{path}.{field}")
    if not fields:
        yield FieldError.required(
            path,
            'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple '
            "fields are set",
        )
