"""What differs between JAX versions in the shape of a jaxpr, in one place."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
from jax.extend import core as jcore
from jax.extend.core import primitives as jprims

from jaxtap._retype import typed, untyped

# Up to jax 0.11 a closed jaxpr wraps an open one; from 0.12 on one class serves for both. `.jaxpr` gives
# the open one on all of them.

scan_p = jprims.scan_p
while_p = jprims.while_p
cond_p = jprims.cond_p
remat_p = jprims.remat_p
jit_p = jprims.jit_p
custom_jvp_call_p = jprims.custom_jvp_call_p
custom_vjp_call_p = jprims.custom_vjp_call_p

# Equations that only call their jaxpr, so that evaluating it in place changes nothing.
CALLS = frozenset(
    {"closed_call", "core_call", "call", "eval_jaxpr", "custom_jvp_call", "custom_vjp_call", "custom_lin_call"}
)

# What is entered when it is lowered within a loop, besides `jit` and those that only call.
_ENTERED = frozenset({"scan", "while", "cond", "remat2", "checkpoint", "jit", "pjit"})

# `jax.checkpoint` binds a primitive named after its second version; users know it as remat.
_LABELS: dict[str, str] = {
    "remat2": "remat",
    "checkpoint": "remat",
    "pjit": "jit",
    "custom_jvp_call": "custom_jvp",
    "custom_vjp_call": "custom_vjp",
}

# In jax 0.10 the loop that a scan is lowered to calls a function for its body; later the body is in place.
CALLS_BODY = jprims.closed_call_p.name == "closed_call"

# The effect of `jax.debug.callback`: loops, checkpoint and custom derivatives already allow it.
EFFECT = next(iter(jax.make_jaxpr(lambda x: jax.debug.callback(lambda _: None, x))(0.0).effects))


def is_entered(primitive: str) -> bool:
    """Whether jaxtap looks into the jaxprs of a primitive."""
    return primitive in _ENTERED or primitive in CALLS


def label(eqn: Any) -> str:
    """How an equation is called in an address."""
    name: str = eqn.primitive.name
    return _LABELS.get(name, name)


def inner(jaxpr: Any) -> Any:
    """The open jaxpr of a closed or open one."""
    return jaxpr.jaxpr if hasattr(jaxpr, "jaxpr") else jaxpr


def consts(jaxpr: Any) -> Sequence[Any]:
    """The values of a jaxpr's constant variables."""
    return getattr(jaxpr, "consts", ())


def rewrap(jaxpr: Any, new: Any) -> Any:
    """`new` in place of the open jaxpr of `jaxpr`, closed if that was."""
    return new if inner(jaxpr) is jaxpr else jaxpr.replace(jaxpr=new)


def is_jaxpr(value: Any) -> bool:
    """Whether a parameter of an equation is a jaxpr."""
    return hasattr(value, "eqns") or (hasattr(value, "jaxpr") and hasattr(value.jaxpr, "eqns"))


def subjaxprs(eqn: Any) -> Iterator[Any]:
    """The jaxprs among the parameters of an equation."""
    for value in eqn.params.values():
        if is_jaxpr(value):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from (v for v in value if is_jaxpr(v))


def map_subjaxprs(eqn: Any, change: Callable[[str, Any], Any]) -> Any:
    """The equation with each of its jaxprs changed; `change` is told the parameter's name (and branch)."""
    params: dict[str, Any] = {}
    for name, value in eqn.params.items():
        if is_jaxpr(value):
            params[name] = change(name, value)
        elif isinstance(value, (tuple, list)) and any(map(is_jaxpr, value)):
            new = [change(f"{name}[{i}]", v) if is_jaxpr(v) else v for i, v in enumerate(value)]
            # A namedtuple's constructor takes its fields one by one.
            params[name] = type(value)(*new) if hasattr(value, "_fields") else type(value)(new)
    changed = any(params[n] is not eqn.params[n] for n in params)
    return replace_params(eqn, params) if changed else eqn


def replace_params(eqn: Any, params: dict[str, Any]) -> Any:
    """The equation with some parameters changed, and its effects brought up to date."""
    eqn = eqn.replace(params={**eqn.params, **params})
    inside = any(EFFECT in inner(sub).effects for sub in subjaxprs(eqn))
    if inside and propagates_effects(eqn):
        return eqn.replace(effects=eqn.effects | {EFFECT})
    if not inside and EFFECT in eqn.effects:
        return eqn.replace(effects=eqn.effects - {EFFECT})
    return eqn


def propagates_effects(eqn: Any) -> bool:
    """Whether an equation shows the effects of its jaxprs; some, such as `custom_linear_solve`, hide them."""
    return eqn.primitive.name != "custom_linear_solve"


def with_eqns(jaxpr: Any, eqns: Sequence[Any]) -> Any:
    """An open jaxpr with other equations, its effects brought up to date."""
    effects = jaxpr.effects - {EFFECT}
    if any(EFFECT in eqn.effects for eqn in eqns):
        effects = effects | {EFFECT}
    return jaxpr.replace(eqns=list(eqns), effects=effects)


def is_literal(atom: Any) -> bool:
    """Whether an equation's operand is a constant written into the jaxpr."""
    return isinstance(atom, jcore.Literal)


def scan_counts(params: dict[str, Any]) -> tuple[int, int]:
    """How many constants and how many carry leaves a scan has."""
    if "num_carry" in params:
        return params["num_consts"], params["num_carry"]
    num_consts, num_carry, _ = map(len, params["ft_in"].unpack())
    return num_consts, num_carry


def arg_names(jaxpr: Any) -> tuple[str, ...] | None:
    """Names of a jaxpr's arguments, or None where no user function stands behind it."""
    info = inner(jaxpr).debug_info
    return None if info is None else info.arg_names


def function_source(jaxpr: Any) -> str:
    """`"function at file:line"` of the function that a jaxpr was traced from."""
    info = inner(jaxpr).debug_info
    return "" if info is None else info.func_src_info or ""


def evaluator(jaxpr: Any, eqns: Sequence[Any], needs: Sequence[Any], gives: Sequence[Any]) -> Callable[..., list[Any]]:
    """A function that evaluates some equations of a jaxpr from the values of `needs` to those of `gives`."""
    part = jaxpr.replace(
        constvars=[],
        invars=list(needs),
        outvars=list(gives),
        eqns=list(eqns),
        debug_info=unnamed(jaxpr),
        effects=set(),
    )
    return as_function(part)


def is_dropped(var: Any) -> bool:
    """Whether an equation's output is one that nothing reads."""
    return isinstance(var, jcore.DropVar)


def advance(jaxpr: Any, eqns: Sequence[Any], values: dict[Any, Any]) -> None:
    """Evaluate some equations of a jaxpr from `values`, and add their outputs to those."""
    needs = list(dict.fromkeys(v for e in eqns for v in e.invars if not is_literal(v) and v in values))
    gives = [v for e in eqns for v in e.outvars if not is_dropped(v)]
    values.update(zip(gives, evaluator(jaxpr, eqns, needs, gives)(*(values[v] for v in needs)), strict=True))


def in_runs(eqns: Iterable[Any], alone: Callable[[Any], bool]) -> list[tuple[bool, list[Any]]]:
    """Equations one by one where `alone` holds of them, and those between in runs; with each, which of both it is."""
    found: list[tuple[bool, list[Any]]] = []
    for eqn in eqns:
        if alone(eqn):
            found.append((True, [eqn]))
        elif found and not found[-1][0]:
            found[-1][1].append(eqn)
        else:
            found.append((False, [eqn]))
    return found


def unnamed(jaxpr: Any) -> Any:
    """The debug info of an open jaxpr without the names of its arguments and results, which are about to change."""
    info = jaxpr.debug_info
    return info and info._replace(arg_names=None, result_paths=None)


def as_function(part: Any) -> Callable[..., list[Any]]:
    """The function that evaluates a jaxpr without constants, or a closed one."""
    if not hasattr(part, "consts"):
        part = jcore.ClosedJaxpr(part, [])  # pyright: ignore[reportPrivateImportUsage] - exported, though not as JAX marks it
    run, avals = jcore.jaxpr_as_fun(part), [var.aval for var in inner(part).invars]
    return lambda *args: untyped(run(*typed(args, avals)))


class WeakMemo:
    """Remembers results by the identity of a jaxpr for as long as that jaxpr lives."""

    def __init__(self) -> None:
        self._memo: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()

    def get(self, jaxpr: Any, key: Any, make: Callable[[], Any]) -> Any:
        """The result for `jaxpr` and `key`, made once."""
        results = self._memo.setdefault(jaxpr, {})
        if key not in results:
            results[key] = make()
        return results[key]

    def rewrap(self, jaxpr: Any, key: Any, make: Callable[[], Any]) -> Any:
        """As `get` for the open jaxpr of `jaxpr`, closed if that was: JAX knows by the object what it has compiled."""
        if inner(jaxpr) is jaxpr:
            return self.get(jaxpr, key, make)
        return self.get(jaxpr, key, lambda: rewrap(jaxpr, self.get(inner(jaxpr), key, make)))
