"""Why a function was traced again: what differs between a call and the most similar one before it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from jaxtap._signature import Argument, LeafType, Signature, apart

# Options that are part of what JAX keys traces by, in every version. A change of any other is only given as the
# reason where there is no better one.
_TRACING_OPTIONS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_default_device",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_random_seed_offset",
    "mesh",
    "jaxtap",
)
# How far apart two calls are that differ in this; in all else, by 1.
_WEIGHTS = {"structure": 8, "static": 4, "shape": 4, "dtype": 4, "weak_type": 2}
# Options that never make JAX trace: how it logs, and where it keeps programs.
_NEVER = ("cache", "log", "dump", "traceback", "explain", "profile")
# How the thing that differs is spoken of; in all else, as an argument.
_PHRASES = {
    "static": "static argument {}",
    "sharding": "sharding of argument {}",
    "options": "jit option {}",
    "context": "{}",
    "function": "{}",
    "unknown": "{}",
}


@dataclasses.dataclass(frozen=True)
class Change:
    """One difference that made JAX trace or compile again.

    Attributes:
      cause: `"function"` (a new function object), `"structure"` (the tree of an argument), `"static"` (the value of a
        static argument), `"shape"`, `"dtype"`, `"weak_type"`, `"sharding"`, `"context"` (a configuration option, a
        mesh, a lens), `"options"` (of `jit`), or `"unknown"`.
      argument: the argument, leaf, option or function that differs.
      before: what it was.
      after: what it is now.
      note: what may be behind it.

    >>> import jax, jax.numpy as jnp
    >>> @jax.jit
    ... def total(x):
    ...     return x.sum()
    >>> with compiles() as log:
    ...     y = total(jnp.ones(2)), total(jnp.ones(3))
    >>> change = log.of("total")[1].changes[0]
    >>> change.cause, change.before, change.after
    ('shape', 'f32[2]', 'f32[3]')
    """

    cause: str
    argument: str
    before: str = ""
    after: str = ""
    note: str = ""

    def __str__(self) -> str:
        what = _PHRASES.get(self.cause, "argument {}").format(self.argument)
        change = f" {self.before} → {self.after}" if self.before or self.after else ""
        return f"{what}{change}{f' ({self.note})' if self.note else ''}"


UNKNOWN = Change(
    "unknown",
    "nothing that can be compared has changed",
    note="caches were cleared, or a context of a library's own was entered",
)


def changes(new: Signature, history: Sequence[Signature]) -> tuple[Change, ...]:
    """What differs between a call and the most similar of those before it, the latest where several are."""
    function = new.function()
    same = [old for old in history if old.function() is function]
    if not same:
        return (_redefined(new, history[-1]),)
    found = min((_differences(new, old) for old in reversed(same)), key=_distance)
    return tuple(found) or (UNKNOWN,)


def _distance(found: list[Change]) -> int:
    return sum(_WEIGHTS.get(change.cause, 1) for change in found)


def _redefined(new: Signature, old: Signature) -> Change:
    if len(new.codes) == len(old.codes) and all(a is b for a, b in zip(new.codes, old.codes, strict=True)):
        note = "the same line made it again: a lambda, closure, method or partial, made in a loop or at each call"
    else:
        note = "the same line was run again, or holds several functions"
    return Change("function", "a new function object", note=note)


def _differences(new: Signature, old: Signature) -> list[Change]:
    found = [*_structure(new, old), *_static(new, old), *_leaves(new, old)]
    found += [c for c in _named("context", new.context, old.context) if c.argument in _TRACING_OPTIONS]
    found += _named("options", new.options, old.options)
    if found or new.context == old.context:
        return found
    return [c for c in _named("context", new.context, old.context) if not any(word in c.argument for word in _NEVER)]


def _named(cause: str, new: dict[str, str], old: dict[str, str]) -> Iterator[Change]:
    if new == old:
        return
    for name in dict.fromkeys((*new, *old)):
        if new.get(name) != old.get(name):
            yield Change(cause, name, old.get(name, "unset"), new.get(name, "unset"))


def _structure(new: Signature, old: Signature) -> Iterator[Change]:
    for name in [*new.arguments, *(name for name in old.arguments if name not in new.arguments)]:
        after, before = new.arguments.get(name), old.arguments.get(name)
        if after is None or before is None:
            yield Change("structure", name, "not given" if before is None else str(before), _given(after))
        elif bool(after.static) != bool(before.static) or after.treedef != before.treedef:
            yield Change("structure", name, *apart(before.whole(), after.whole()))
        elif after.by_keyword != before.by_keyword:
            words = ("by position", "by keyword")
            yield Change("structure", name, words[before.by_keyword], words[after.by_keyword])


def _given(argument: Argument | None) -> str:
    return "not given" if argument is None else str(argument)


def _static(new: Signature, old: Signature) -> Iterator[Change]:
    for name, after in new.arguments.items():
        before = old.arguments.get(name)
        if before is None or not (after.static and before.static) or _equal(before.static[0], after.static[0]):
            continue
        same = before.whole() == after.whole()
        note = "equal to look at, but not by ==: define __eq__ and __hash__" if same else ""
        yield Change("static", name, *apart(before.whole(), after.whole()), note)


def _equal(a: object, b: object) -> bool:
    try:
        return type(a) is type(b) and bool(a == b)
    except Exception:  # noqa: BLE001 - a comparison that a user has written
        return False


def _leaves(new: Signature, old: Signature) -> Iterator[Change]:
    for name, argument in new.arguments.items():
        before = old.arguments.get(name)
        if before is None or argument.treedef != before.treedef:
            continue
        for (leaf, now), (_, then) in zip(argument.leaves, before.leaves, strict=True):
            if now != then:
                yield from _leaf(leaf, then, now)


def _leaf(name: str, then: LeafType, now: LeafType) -> Iterator[Change]:
    reshaped, recast = then.shape != now.shape, then.dtype != now.dtype
    if reshaped:
        note = "last batch?" if _is_cut(then, now) and not recast else ""
        yield Change("shape", name, str(then), str(now), note)
    if recast:
        yield Change("dtype", name, str(then), str(now))
    if reshaped or recast:
        return
    if then.weak != now.weak:
        yield Change("weak_type", name, _weakly(then), _weakly(now), "a Python number is weak, an array is not")
    else:
        yield Change("sharding", name, then.sharding or "left to JAX", now.sharding or "left to JAX")


def _is_cut(then: LeafType, now: LeafType) -> bool:
    """Whether there is less of the same along the first axis."""
    return len(then.shape) == len(now.shape) > 0 and now.shape[0] < then.shape[0] and then.shape[1:] == now.shape[1:]


def _weakly(leaf: LeafType) -> str:
    return f"{leaf} weak" if leaf.weak else str(leaf)
