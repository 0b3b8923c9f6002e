"""Which loops are left untouched, with a copy beside them for the events."""

from __future__ import annotations

from typing import Any

from jaxtap._jaxprs import scan_p


def needs_twin(primitive: Any, params: dict[str, Any]) -> bool:
    """Whether looking into this loop could change a bit of its result."""
    return primitive is scan_p and params["unroll"] != 1
