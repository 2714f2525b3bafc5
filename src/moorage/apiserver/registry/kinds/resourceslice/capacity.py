"""Request policies: the amounts in which the capacity of a shared device can be requested."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.errors import FieldError
from moorage.api.quantity import NANO, Quantity, parse
from moorage.apiserver.registry.kind import Obj

_OPTIONS_MAX = 10
_MILLI = NANO // 1000
_INT64_MAX = 2**63 - 1


def request_policy_errors(capacity: Obj, path: str, *, is_shared: bool) -> Iterator[FieldError]:
    """Validate the request policy of a capacity. Only shared devices may have one."""
    policy, at = capacity.get("requestPolicy"), f"{path}.requestPolicy"
    if policy is None:
        return
    if not is_shared:
        yield FieldError.forbidden(at, "allowMultipleAllocations must be true")
        return
    limit = parse(capacity.get("value", "0"))
    kinds = [field for field in ("validValues", "validRange") if policy.get(field) is not None]
    if len(kinds) == 2:
        yield FieldError.forbidden(
            at,
            'exactly one policy can be specified, cannot specify "validValues" and "validRange" '
            "at the same time",
        )
    elif kinds and "default" not in policy:
        yield FieldError.required(f"{at}.default", f"required when {kinds[0]} is defined")
    elif kinds == ["validValues"]:
        options = [parse(option) for option in policy["validValues"]]
        yield from _option_errors(options, f"{at}.validValues", parse(policy["default"]), limit)
    elif kinds == ["validRange"]:
        yield from _range_errors(policy["validRange"], f"{at}.validRange", policy, limit)


def _option_errors(
    options: list[Quantity], path: str, default: Quantity, limit: Quantity
) -> Iterator[FieldError]:
    for index in range(1, len(options)):
        if options[index] < options[index - 1]:
            yield FieldError.invalid(
                f"{path}[{index}]", str(options[index]), "values must be sorted in ascending order"
            )
    if len(options) > _OPTIONS_MAX:
        yield FieldError.too_many(path, len(options), _OPTIONS_MAX)
        options = []
    for index, option in enumerate(options):
        if limit < option:
            yield FieldError.invalid(
                f"{path}[{index}]", str(option), f"option is larger than capacity value: {limit}"
            )
    seen: set[Quantity] = set()
    for index, option in enumerate(options):
        if option in seen:
            yield FieldError.duplicate(f"{path}[{index}]", _decimal(option))
        seen.add(option)
    if default not in seen:
        yield FieldError.invalid(
            path, str(default), "default value is not valid according to the requestPolicy"
        )


def _decimal(amount: Quantity) -> str:
    """Return an amount as Go shows the duplicate of one: `1024`, `0.500`."""
    whole, rest = divmod(abs(amount.nano), NANO)
    sign = "-" if amount.nano < 0 else ""
    digits = f"{rest:09}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return f"{sign}{whole}.{digits}" if digits else f"{sign}{whole}"


def _range_errors(
    valid_range: Obj, path: str, policy: Obj, limit: Quantity
) -> Iterator[FieldError]:
    if "min" not in valid_range:
        yield FieldError.required(f"{path}.min", "required when validRange is defined")
        return
    amounts = {"default": parse(policy["default"])}
    amounts |= {
        field: parse(valid_range[field]) for field in ("min", "max", "step") if field in valid_range
    }
    yield from _bound_errors(amounts, path, limit)
    is_fractional = any(not amount.is_whole for amount in amounts.values())
    if is_fractional:
        too_fine = [field for field, amount in amounts.items() if not _is_milli(amount)]
        for field in too_fine:
            yield FieldError.invalid(
                f"{path}.{field}",
                str(amounts[field]),
                "value cannot be represented as a milli value",
            )
        if too_fine:
            return
    if "step" in amounts:
        yield from _step_errors(amounts, path, limit, is_fractional=is_fractional)


def _is_milli(amount: Quantity) -> bool:
    return amount.nano % _MILLI == 0 and abs(amount.nano // _MILLI) <= _INT64_MAX


def _bound_errors(amounts: dict[str, Quantity], path: str, limit: Quantity) -> Iterator[FieldError]:
    default, least, most = amounts["default"], amounts["min"], amounts.get("max")
    if limit < least:
        yield FieldError.invalid(
            f"{path}.min", str(least), f"min is larger than capacity value: {limit}"
        )
    if default < least:
        yield FieldError.invalid(
            f"{path}.default", str(default), f"default is less than min: {least}"
        )
    if most is None:
        return
    if most < least:
        yield FieldError.invalid(f"{path}.max", str(least), f"min is larger than max: {most}")
    if limit < most:
        yield FieldError.invalid(
            f"{path}.max", str(most), f"max is larger than capacity value: {limit}"
        )
    if most < default:
        yield FieldError.invalid(
            f"{path}.default", str(default), f"default is more than max: {most}"
        )


def _step_errors(
    amounts: dict[str, Quantity], path: str, limit: Quantity, *, is_fractional: bool
) -> Iterator[FieldError]:
    least, step, at = amounts["min"], amounts["step"], f"{path}.step"
    if step.nano <= 0:
        yield FieldError.invalid(at, str(step), "must be greater than zero")
        return
    if limit < least + step:
        yield FieldError.invalid(
            at, str(step), f"one step {least + step} is larger than capacity value: {limit}"
        )
    negative = [field for field, amount in amounts.items() if amount.nano < 0]
    if negative and not is_fractional:
        for field in negative:
            yield FieldError.invalid(
                f"{path}.{field}", str(amounts[field]), "must be greater than or equal to 0"
            )
        return
    for field in ("default", "max"):
        amount = amounts.get(field, least)
        if (amount.nano - least.nano) % step.nano:
            yield FieldError.invalid(
                at,
                str(amount),
                f"value is not a multiple of a given step ({step}) from ({least})",
            )
