"""The rules, by their ids."""

from __future__ import annotations

from jaxtap_command._rules import _compiling, _effects, _gradients, _host, _keys, _tracing
from jaxtap_command._rules._base import Rule

_ALL = (
    _tracing.BRANCH,
    _tracing.PRINT,
    _tracing.NUMPY,
    _tracing.FSTRING,
    _keys.REUSED,
    _compiling.IN_LOOP,
    _compiling.AT_ONCE,
    _compiling.METHOD,
    _effects.GROWTH,
    _tracing.CONCRETE,
    _host.HOT,
    _host.TIMING,
    _gradients.WHERE,
    _compiling.UNHASHABLE,
    _effects.GLOBAL,
    _compiling.UNROLLED,
    _compiling.DONATION,
    _effects.EFFECT,
    _tracing.SIZES,
    _tracing.ONCE,
)

RULES: dict[str, Rule] = {rule.id: rule for rule in _ALL}
