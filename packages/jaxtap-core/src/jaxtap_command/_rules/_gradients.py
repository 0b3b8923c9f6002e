"""Code whose value is fine and whose gradient is not."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jaxtap_command._rules._base import Found, Rule
from jaxtap_command._rules._scopes import constant, words
from jaxtap_command._rules._source import Source

# Their derivatives are infinite or NaN at the edge of where they are defined, or beyond it.
_UNSAFE = words("log log2 log10 sqrt reciprocal", prefix="jax.numpy.") | words("log sqrt rsqrt cbrt", prefix="jax.lax.")


def _where(source: Source) -> Iterator[Found]:
    for call in source.scopes.nodes:
        if not (isinstance(call, ast.Call) and source.name(call.func) in ("jax.numpy.where", "jax.lax.select")):
            continue
        if len(call.args) != 3:
            continue
        guarded = set(_compared_with_zero(source, call.args[0]))
        for branch in call.args[1:]:
            for node, argument in _unsafe(source, branch):
                if ast.dump(argument) in guarded and not _replaced(source, argument):
                    yield node, f"`{ast.unparse(node)}` is guarded by where, and its gradient is not"


def _compared_with_zero(source: Source, test: ast.expr) -> Iterator[str]:
    """What a test compares with zero, to keep it from an unsafe function."""
    if isinstance(test, ast.Name):
        scope = source.scopes.binder(test, test.id)
        made = [
            value
            for n in (source.scopes.own(scope) if scope is not None else ())
            if isinstance(n, ast.Name) and n.id == test.id and isinstance(n.ctx, ast.Store)
            if (value := source.scopes.assigned(n)) is not None
        ]
        if len(made) == 1 and not isinstance(made[0], ast.Name):
            yield from _compared_with_zero(source, made[0])
    elif isinstance(test, ast.BinOp | ast.BoolOp | ast.UnaryOp):
        for part in ast.iter_child_nodes(test):
            if isinstance(part, ast.expr):
                yield from _compared_with_zero(source, part)
    elif isinstance(test, ast.Compare) and len(test.comparators) == 1:
        sides = test.left, test.comparators[0]
        for side, other in (sides, sides[::-1]):
            if constant(other) in (0, 0.0) and constant(other) is not False:
                yield ast.dump(side)


def _unsafe(source: Source, branch: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The unsafe operations in a branch, each with the argument that makes it so."""
    for node in ast.walk(branch):
        if isinstance(node, ast.Call) and source.name(node.func) in _UNSAFE and node.args:
            yield node, node.args[0]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            yield node, node.right
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            power = constant(node.right)
            if isinstance(power, int | float) and (power < 0 or power != int(power)):
                yield node, node.left


def _replaced(source: Source, argument: ast.expr) -> bool:
    """Whether the argument was made safe before, by a where or a clip of its own."""
    while isinstance(argument, ast.Subscript):
        argument = argument.value
    if not isinstance(argument, ast.Name):
        return False
    scope = source.scopes.binder(argument, argument.id)
    for node in source.scopes.own(scope) if scope is not None else ():
        if isinstance(node, ast.Name) and node.id == argument.id and isinstance(node.ctx, ast.Store):
            name = source.scopes.callee(value) if (value := source.scopes.assigned(node)) is not None else None
            if name in (
                "jax.numpy.where",
                "jax.numpy.maximum",
                "jax.numpy.clip",
                "jax.lax.select",
                "jax.lax.stop_gradient",
            ):
                return True
    return False


WHERE = Rule(
    "J013",
    "where around an unsafe function",
    "The gradient of the branch that was not chosen is computed too, and 0 times its infinity is NaN.",
    "Make the argument safe inside: `safe = jnp.where(x > 0, x, 1.0)`, then `jnp.where(x > 0, jnp.log(safe), 0.0)`.",
    _where,
)
