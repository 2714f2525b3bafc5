"""Secrets: text given in the clear is folded into the encoded data."""

from __future__ import annotations

import base64

from moorage.registry.kind import Obj


def default_secret(secret: Obj) -> None:
    secret.setdefault("type", "Opaque")
    plain = secret.pop("stringData", None)
    if plain:
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in plain.items()}
        secret["data"] = {**secret.get("data", {}), **encoded}
