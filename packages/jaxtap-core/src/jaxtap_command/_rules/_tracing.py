"""Python that cannot see, or should not decide on, a value that is only being traced."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jaxtap_command._rules._base import Found, Rule
from jaxtap_command._rules._flow import Level
from jaxtap_command._rules._scopes import keyword, words
from jaxtap_command._rules._source import Source


def _words(node: ast.AST, most: int = 40) -> str:
    """An expression as one short piece of text."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= most else text[: most - 3] + "..."


def _traced_in(source: Source, node: ast.AST) -> bool:
    """Whether an expression hands on a traced value, and not only its shape or dtype."""
    return source.level(node) > Level.UNKNOWN


def _calls(source: Source) -> Iterator[ast.Call]:
    for node in source.staged_nodes():
        if isinstance(node, ast.Call):
            yield node


def _branch(source: Source) -> Iterator[Found]:
    for test in source.truths():
        yield test, f"Python asks whether `{_words(test)}` is true, and it is a traced array"


def _print(source: Source) -> Iterator[Found]:
    for call in _calls(source):
        if source.name(call.func) != "print":
            continue
        parts = [
            p
            for a in call.args
            for p in (
                [v.value for v in a.values if isinstance(v, ast.FormattedValue)]
                if isinstance(a, ast.JoinedStr)
                else [a]
            )
        ]
        if shown := next((p for p in parts if _traced_in(source, p)), None):
            yield call, f"print of the traced `{_words(shown)}` in a function that is compiled"


_NUMPY_STATIC = words("numpy.shape numpy.ndim numpy.size numpy.result_type numpy.dtype numpy.issubdtype")


def _numpy(source: Source) -> Iterator[Found]:
    for call in _calls(source):
        name = source.name(call.func) or ""
        if not name.startswith("numpy.") or name in _NUMPY_STATIC or name.startswith("numpy.random."):
            continue
        if given := next((a for a in call.args if _traced_in(source, a)), None):
            yield call, f"`{_words(call.func)}` is given the traced `{_words(given)}`"


def _formatted(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.JoinedStr):
        yield from (v.value for v in node.values if isinstance(v, ast.FormattedValue))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        yield from (*node.args, *(k.value for k in node.keywords))
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant):
        yield from node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]


def _fstring(source: Source) -> Iterator[Found]:
    for call in _calls(source):
        if source.name(call.func) != "jax.debug.print" or not call.args:
            continue
        for value in _formatted(call.args[0]):
            if _traced_in(source, value):
                yield call, f"the text is put together while tracing, when `{_words(value)}` has no value yet"
                break


_CASTS = frozenset({"float", "int", "bool", "complex"})


def _concrete(source: Source) -> Iterator[Found]:
    for call in _calls(source):
        func = call.func
        asks = source.name(func) in _CASTS and len(call.args) == 1 and _traced_in(source, call.args[0])
        if isinstance(func, ast.Attribute) and func.attr in ("item", "tolist") and not call.args:
            # An argument may be a container with a `tolist` of its own.
            asks = source.level(func.value) >= (Level.ARRAY if func.attr == "tolist" else Level.GIVEN)
        if asks:
            yield call, f"`{_words(call)}` asks a traced value for its number"


_SIZED = words("nonzero flatnonzero argwhere unique union1d intersect1d setdiff1d", prefix="jax.numpy.")


def _sizes(source: Source) -> Iterator[Found]:
    for node in source.staged_nodes():
        if isinstance(node, ast.Call):
            name = source.name(node.func)
            alone = name == "jax.numpy.where" and len(node.args) == 1 and not node.keywords
            sized = keyword(node, "size") is not None or any(k.arg is None for k in node.keywords)
            if (name in _SIZED or alone) and not sized and node.args and _traced_in(source, node.args[0]):
                yield node, f"how many elements `{_words(node)}` has depends on values, not on shapes"
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and _traced_in(source, node.value):
            at = isinstance(node.value, ast.Attribute) and node.value.attr == "at"
            index = node.slice.operand if isinstance(node.slice, ast.UnaryOp) else node.slice
            if not at and isinstance(index, ast.Compare) and source.level(index) == Level.ARRAY:
                yield node, f"how many elements `{_words(node)}` has depends on values, not on shapes"


_ONCE = (
    "numpy.random.",
    "random.",
    "time.",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "os.urandom",
    "uuid.uuid",
)
_NOT_ONCE = frozenset({"time.sleep", "random.Random", "random.SystemRandom"})


def _once(source: Source) -> Iterator[Found]:
    for call in _calls(source):
        name = source.name(call.func) or ""
        if name.startswith(_ONCE) and name not in _NOT_ONCE:
            yield call, f"`{_words(call)}` runs once, while tracing, and every later call gets that same value"


BRANCH = Rule(
    "J001",
    "Python branch on a traced value",
    "Under jit a value has a shape and a dtype but no number yet: `if`, `while`, `assert`, `and`, `or` and `not` on it "
    "raise TracerBoolConversionError, or freeze one branch into the compiled program.",
    "Choose with `jnp.where(test, a, b)` or `lax.cond`, or make the argument static if it is no array.",
    _branch,
)
PRINT = Rule(
    "J002",
    "print of a traced value",
    "print runs while tracing: it shows a tracer once, and nothing on later calls.",
    'Write `jax.debug.print("x = {}", x)`, or watch the value with `jaxtap.mark`.',
    _print,
)
NUMPY = Rule(
    "J003",
    "NumPy call on a traced value",
    "NumPy needs the numbers: on a tracer it raises TracerArrayConversionError.",
    "Call the function of the same name in `jax.numpy`.",
    _numpy,
)
FSTRING = Rule(
    "J004",
    "text formatted before jax.debug.print",
    "The text is made while tracing, so it holds `JitTracer<float32[]>` in place of the value.",
    'Leave the braces to it: `jax.debug.print("x = {x}", x=x)`.',
    _fstring,
)
CONCRETE = Rule(
    "J010",
    "a traced value turned into a Python number",
    "`float`, `int`, `bool`, `.item()` and `.tolist()` need the number, which does not exist while tracing: they raise "
    "ConcretizationTypeError.",
    "Keep the array (`x.astype(...)` changes its dtype), or move the conversion outside of the compiled function.",
    _concrete,
)
SIZES = Rule(
    "J019",
    "a shape that depends on values",
    "A compiled program has fixed shapes: a boolean index, `nonzero`, `unique` and one-argument `where` raise "
    "NonConcreteBooleanIndexError or ConcretizationTypeError.",
    "Give `size=` and `fill_value=`, or keep the shape with `jnp.where(mask, x, 0)`.",
    _sizes,
)
ONCE = Rule(
    "J020",
    "Python's or NumPy's random numbers or clock in a compiled function",
    "It runs once, while tracing: what it returned is a constant of the compiled program, the same on every call.",
    "Pass a key and use `jax.random`; take times outside of the compiled function.",
    _once,
)
