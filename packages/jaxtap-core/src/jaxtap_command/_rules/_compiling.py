"""Code that compiles again where once would do, or compiles more than it needs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jaxtap_command._rules._base import Found, Rule
from jaxtap_command._rules._flow import Level
from jaxtap_command._rules._scopes import Function, constant, defaults, positional, words
from jaxtap_command._rules._source import Source
from jaxtap_command._rules._traced import JIT, jit_options, passed_function, static_parameters


def _new_each_time(source: Source, call: ast.Call, within: ast.AST) -> str | None:
    """What makes the function given to jit a new one on each run of `within`; None where it may be the same."""
    given, functions = passed_function(source.scopes, call)
    if isinstance(given, ast.Lambda):
        return "a lambda"
    if isinstance(given, ast.Call) and source.scopes.callee(given) == "functools.partial":
        return "a partial"
    if isinstance(given, ast.Name) and functions and all(within in _around(source, f) for f in functions):
        return f"`{given.id}`, which is defined here"
    if isinstance(given, ast.Attribute) and isinstance(given.value, ast.Name) and given.value.id == "self":
        return f"the bound method `{ast.unparse(given)}`, a new object each time," if functions else None
    return None


def _around(source: Source, node: ast.AST) -> list[ast.AST]:
    found: list[ast.AST] = []
    at = source.scopes.parent.get(node)
    while at is not None:
        found.append(at)
        at = source.scopes.parent.get(at)
    return found


def _called_at_once(source: Source, call: ast.Call) -> bool:
    at = source.scopes.parent.get(call)
    return isinstance(at, ast.Call) and at.func is call


def _in_loop(source: Source) -> Iterator[Found]:
    for call in source.jits.calls:
        loop = source.scopes.loop(call)
        if loop is None or source.staged(call):
            continue
        what = _new_each_time(source, call, loop)
        if what is not None and (_called_at_once(source, call) or _used_in(source, call, loop)):
            yield call, f"each round of the loop in line {loop.lineno} compiles {what} anew"
    for function, decorator in source.jits.decorated.items():
        loop = source.scopes.loop(function)
        name = getattr(function, "name", "")
        if loop is not None and not source.staged(function) and _calls_name(source, name, loop):
            yield decorator, f"each round of the loop in line {loop.lineno} defines and compiles `{name}` anew"


def _used_in(source: Source, call: ast.Call, loop: ast.AST) -> bool:
    """Whether the name given to a compiled function is called in the loop, and not kept beyond it."""
    at = source.scopes.parent.get(call)
    if not (isinstance(at, ast.Assign) and len(at.targets) == 1 and isinstance(at.targets[0], ast.Name)):
        return False
    return _calls_name(source, at.targets[0].id, loop)


def _calls_name(source: Source, name: str, loop: ast.AST) -> bool:
    uses = [n for n in ast.walk(loop) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)]
    called = [n for n in uses if isinstance(c := source.scopes.parent.get(n), ast.Call) and c.func is n]
    return bool(called) and len(called) == len(uses)


def _at_once(source: Source) -> Iterator[Found]:
    for call in source.jits.calls:
        function = source.scopes.function(call)
        if function is None or not _called_at_once(source, call) or source.staged(call):
            continue
        if source.scopes.loop(call) is not None or _runs_once(function):
            continue
        what = _new_each_time(source, call, function)
        if what is not None:
            name = getattr(function, "name", "the lambda around it")
            yield call, f"each call of `{name}` compiles {what} anew"


def _runs_once(function: Function) -> bool:
    """Whether a function is of the kind that is called once in a program."""
    name = getattr(function, "name", "")
    return name.startswith(("test", "main", "_main", "init", "__init__", "setup", "create_", "run_")) or name.endswith(
        "main"
    )


_PYTREES = ("register_pytree", "register_dataclass", "register_static", "pytree_dataclass")


def _method(source: Source) -> Iterator[Found]:
    for function, decorator in source.jits.decorated.items():
        around = source.scopes.class_of(function)
        options = jit_options(source.scopes, decorator)
        first = positional(function)[:1]
        if around is None or options is None or first != ["self"] or _may_be_pytree(source, around):
            continue
        others = [d for d in getattr(function, "decorator_list", []) if d is not decorator]
        if others:
            continue
        static = static_parameters(function, options)
        if static is not None and "self" not in static:
            yield (
                decorator,
                f"`self` is no array: calling `{around.name}.{getattr(function, 'name', '')}` raises TypeError",
            )


def _may_be_pytree(source: Source, around: ast.ClassDef) -> bool:
    if around.decorator_list or around.keywords:
        return True
    if any(source.name(base) != "object" for base in around.bases):
        return True
    if any(isinstance(n, ast.FunctionDef) and n.name in ("tree_flatten", "tree_unflatten") for n in around.body):
        return True
    for node in source.scopes.nodes:
        if not isinstance(node, ast.Call) or not any(word in ast.unparse(node.func) for word in _PYTREES):
            continue
        if any(isinstance(a, ast.Name) and a.id == around.name for a in node.args):
            return True
    return False


_UNHASHABLE = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
_UNHASHABLE_CALLS = frozenset({"list", "dict", "set", "bytearray"})
_UNHASHABLE_TYPES = words("list dict set typing.List typing.Dict typing.Set jax.Array jax.numpy.ndarray numpy.ndarray")


def _is_unhashable(source: Source, node: ast.expr) -> bool:
    if isinstance(node, _UNHASHABLE):
        return True
    name = source.scopes.callee(node) or ""
    return name in _UNHASHABLE_CALLS or name in ("numpy.array", "jax.numpy.array", "numpy.asarray", "jax.numpy.asarray")


def _unhashable(source: Source) -> Iterator[Found]:
    for function, name, static in _with_static(source):
        for parameter, value in defaults(function).items():
            if parameter in static and _is_unhashable(source, value):
                yield value, f"the static argument `{parameter}` has a default that cannot be hashed"
        for arg in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs):
            base = arg.annotation.value if isinstance(arg.annotation, ast.Subscript) else arg.annotation
            if arg.arg in static and base is not None and source.name(base) in _UNHASHABLE_TYPES:
                yield arg, f"the static argument `{arg.arg}` is a `{ast.unparse(base)}`, which cannot be hashed"
        if name is None:
            continue
        scope, bound = name
        for call in source.scopes.nodes:
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == bound):
                continue
            if source.scopes.binder(call.func, bound) is not scope or source.scopes.class_of(function) is not None:
                continue
            given = dict(zip(positional(function), call.args, strict=False))
            given |= {k.arg: k.value for k in call.keywords if k.arg is not None}
            for parameter, value in given.items():
                if parameter in static and _is_unhashable(source, value):
                    yield (
                        value,
                        f"the static argument `{parameter}` is given `{ast.unparse(value)}`, which cannot be hashed",
                    )


def _with_static(source: Source) -> Iterator[tuple[Function, tuple[ast.AST, str] | None, frozenset[str]]]:
    """Functions that are compiled with static arguments: the function, the name that calls it, and which are static."""
    for function, decorator in source.jits.decorated.items():
        options = jit_options(source.scopes, decorator)
        if options and (static := static_parameters(function, options)):
            yield function, (source.scopes.scope(function), getattr(function, "name", "")), static
    for call in source.jits.calls:
        given, functions = passed_function(source.scopes, call)
        if source.scopes.callee(call) != JIT or not isinstance(given, ast.Name | ast.Lambda):
            continue
        name = next((key for key, by in source.jits.names.items() if by is call), None)
        for function in functions:
            if static := static_parameters(function, call.keywords):
                yield function, name, static


LONG = 64
"""Rounds from which a Python loop in a compiled function counts as long."""


def _long(source: Source) -> Iterator[Found]:
    for node in source.staged_nodes():
        if not (isinstance(node, ast.For) and source.name(getattr(node.iter, "func", node)) == "range"):
            continue
        assert isinstance(node.iter, ast.Call)
        if not any(source.level(n) == Level.ARRAY for part in node.body for n in ast.walk(part)):
            continue
        literals = [constant(a) for a in node.iter.args]
        if literals and all(isinstance(v, int) for v in literals):
            rounds = len(range(*[v for v in literals if isinstance(v, int)][:3]))
            if rounds >= LONG:
                yield node, f"{rounds} rounds of Python become {rounds} copies of the body in the program"
        elif (stop := node.iter.args[-1 if len(literals) < 3 else 1]) and _is_length(source, stop):
            yield node, f"the body is copied `{ast.unparse(stop)}` times into the program"


def _is_length(source: Source, node: ast.expr) -> bool:
    """Whether an expression is the leading axis of a traced array."""
    if not (isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape"):
        return False
    return constant(node.slice) == 0 and source.level(node.value.value) > Level.UNKNOWN


_STATES = frozenset({"opt_state", "optimizer_state", "optim_state"})
_DONATES = ("donate_argnums", "donate_argnames")


def _donation(source: Source) -> Iterator[Found]:
    for function, how in source.traced.items():
        if how.kind != "jit" or source.staged(how.by):
            continue
        options = how.by.keywords if isinstance(how.by, ast.Call) else []
        if any(k.arg is None or k.arg in _DONATES for k in options):
            continue
        names = [n for n in positional(function) if n not in how.static]
        old = _updated(source, function, names)
        if old is not None:
            yield how.by, f"`{old}` goes in and comes out, and both copies are kept for the time of the step"


def _updated(source: Source, function: Function, names: list[str]) -> str | None:
    """The training state that a function takes and returns anew."""
    returned = [r.value for r in source.scopes.own(function) if isinstance(r, ast.Return) and r.value is not None]
    out = {n.id for value in returned for n in ast.walk(value) if isinstance(n, ast.Name)}
    for name in names:
        if name in _STATES and any(name in one for one in out) and _assigns(source, function, out, name):
            return name
    for node in source.scopes.own(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "apply_gradients":
            base = node.func.value
            if isinstance(base, ast.Name) and base.id in names:
                target = source.scopes.parent.get(node)
                made = target.targets[0] if isinstance(target, ast.Assign) else None
                if isinstance(target, ast.Return) or (isinstance(made, ast.Name) and made.id in out):
                    return base.id
    return None


def _assigns(source: Source, function: Function, out: set[str], name: str) -> bool:
    """Whether a returned variable that is named like the state is made in the function."""
    made = {n.id for n in source.scopes.own(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return any(one in made and name in one for one in out)


IN_LOOP = Rule(
    "J006",
    "jit of a new function in a loop",
    "jit keeps compiled code by function object: a lambda, partial or function made in the loop is a new one each "
    "round, and is traced and compiled each round.",
    "Make the compiled function once, before the loop, and pass what changes as arguments.",
    _in_loop,
)
AT_ONCE = Rule(
    "J007",
    "jit made and called in one expression",
    "Each call of the function around it makes a new function object, so nothing compiled is found again: it is traced "
    "and compiled on every call.",
    "Define the compiled function at module level, or keep it where it is made once.",
    _at_once,
)
METHOD = Rule(
    "J008",
    "jit on a method",
    "`self` is traced like any argument, and an object that is no pytree raises TypeError; made static, the compiled "
    "code keeps the object alive and does not see its attributes change.",
    "Compile a function of the arrays that the method needs, or register the class as a pytree.",
    _method,
)
UNHASHABLE = Rule(
    "J014",
    "a static argument that cannot be hashed",
    "Static arguments are part of the key under which compiled code is kept: a list, dict, set or array "
    "raises ValueError.",
    "Use a tuple or a frozen dataclass, or pass arrays as traced arguments.",
    _unhashable,
)
UNROLLED = Rule(
    "J016",
    "a long Python loop in a compiled function",
    "Tracing unrolls it: the program holds a copy of the body for each round, and compile time grows with it.",
    "Use `lax.fori_loop` or `lax.scan`.",
    _long,
)
DONATION = Rule(
    "J017",
    "a train step that donates nothing",
    "Old and new state are both in memory during the step, though the old one is not used again: up to "
    "twice the memory.",
    "Add `donate_argnames=` with the state's name, and do not use the old state after the call.",
    _donation,
)
