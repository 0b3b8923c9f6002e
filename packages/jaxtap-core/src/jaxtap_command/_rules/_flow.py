"""Which values of a traced function are arrays, from its parameters on, statement by statement.

Precision goes before reach: a value counts as an array only where every path makes it one. What a call of an
unknown function returns is unknown, and so are the attributes of arguments, which may be static.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from enum import IntEnum

from jaxtap_command._rules._scopes import Function, Scopes, forked, parameters, words
from jaxtap_command._rules._traced import Traced


class Level(IntEnum):
    """How sure it is that a value is an array under tracing."""

    UNKNOWN = 0
    # An array or a container of arrays, with attributes that may be static.
    GIVEN = 1
    # The same of a loop's carry, where attributes are leaves or containers too.
    CARRIED = 2
    ARRAY = 3


_ARRAYS = ("jax.numpy.", "jax.lax.", "jax.nn.", "jax.random.", "jax.scipy.", "jax.ops.")
# They answer from shapes and dtypes alone.
_STATIC = words(
    "shape ndim size result_type issubdtype dtype iinfo finfo isdtype broadcast_shapes promote_types can_cast "
    "iterable isscalar printoptions vectorize frompyfunc ufunc float32 float64 int32 int64 bool_ uint32 "
    "newaxis inf pi nan einsum_path get_printoptions set_printoptions isrealobj iscomplexobj",
    prefix="jax.numpy.",
) | {"jax.lax.axis_size", "jax.nn.initializers", "jax.random.key_impl"}
_CONTAINERS = words(
    "jax.lax.scan jax.lax.while_loop jax.lax.fori_loop jax.lax.cond jax.lax.switch jax.lax.map "
    "jax.lax.associative_scan jax.lax.custom_root jax.lax.psum jax.lax.pmean jax.lax.pmax jax.lax.pmin "
    "jax.lax.stop_gradient jax.lax.optimization_barrier jax.lax.sort jax.lax.all_gather jax.numpy.linalg.svd "
    "jax.numpy.linalg.eigh jax.numpy.linalg.eig jax.numpy.linalg.qr jax.numpy.linalg.slogdet jax.numpy.unique "
    "jax.numpy.nonzero jax.numpy.meshgrid jax.numpy.split jax.numpy.array_split jax.numpy.modf jax.numpy.frexp "
    "jax.numpy.divmod jax.numpy.histogram jax.lax.top_k jax.lax.custom_linear_solve jax.lax.linalg"
)
_METHODS = words(
    "sum mean min max any all astype reshape dot ravel flatten squeeze transpose std var prod cumsum cumprod "
    "argmax argmin argsort round clip copy conj repeat take swapaxes trace diagonal"
)
_UPDATES = words("set add multiply mul divide power min max get apply subtract")
_SAME = frozenset({"T", "mT", "real", "imag", "at"})
# Guards after which code may well know that its value is concrete.
_GUARDS = ("Tracer", "is_concrete", "_is_traced", "concrete_or_error", "core.get_aval", "disable_jit")
_ARRAY_TYPES = frozenset({"jax.Array", "jax.numpy.ndarray", "jax.typing.ArrayLike", "jaxtyping.Array", "chex.Array"})

Env = dict[str, Level]


class Flow:
    """Walks every traced function of a file.

    Args:
      scopes: the file's scopes.
      traced: the functions that are traced.
      host: functions that run on the host.

    Attributes:
      levels: what is known of each expression in a traced function.
      staged: the functions that are staged out, with those defined in them.
      truths: the arrays whose truth Python asks for.
    """

    def __init__(self, scopes: Scopes, traced: dict[Function, Traced], host: set[Function]) -> None:
        self._scopes = scopes
        self._traced = traced
        self._host = host
        self.levels: dict[ast.AST, Level] = {}
        self.staged: dict[Function, None] = {}
        self.truths: list[ast.expr] = []

    def run(self) -> None:
        """Walk the outermost traced functions, and with them what they define."""
        for function in self._traced:
            if not any(f in self._traced for f in self._scopes.functions_around(function)):
                self._function(function, {})

    def _function(self, function: Function, outside: Env) -> None:
        if function in self._host or function in self.staged:
            return
        self.staged[function] = None
        env = dict(outside)
        how = self._traced.get(function)
        for arg in parameters(function):
            env[arg.arg] = self._parameter(arg, how)
        if isinstance(function, ast.Lambda):
            self._value(function.body, env)
            return
        self._block(function.body, env)

    def _parameter(self, arg: ast.arg, how: Traced | None) -> Level:
        if how is None or arg.arg in how.static or arg.arg == "self":
            return Level.UNKNOWN
        if arg.annotation is not None and self._scopes.name(arg.annotation) in _ARRAY_TYPES:
            return Level.ARRAY
        return Level.CARRIED if how.kind == "loop" else Level.GIVEN

    # Statements

    def _block(self, body: Sequence[ast.stmt], env: Env) -> None:
        later: list[tuple[Function, Env]] = []
        for statement in body:
            self._statement(statement, env, later)
        # A function sees its surroundings as they are when it is called, which is after they are complete.
        for function, _ in later:
            self._function(function, env)

    def _statement(self, statement: ast.stmt, env: Env, later: list[tuple[Function, Env]]) -> None:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            env[statement.name] = Level.UNKNOWN
            later.append((statement, env))
        elif isinstance(statement, ast.Assign):
            level = self._value(statement.value, env)
            for target in statement.targets:
                self._assign(target, level, env, statement.value)
        elif isinstance(statement, ast.AnnAssign):
            if statement.value is not None:
                self._assign(statement.target, self._value(statement.value, env), env, statement.value)
        elif isinstance(statement, ast.AugAssign):
            level = max(self._value(statement.target, env), self._value(statement.value, env))
            # `total += traced` on a list or tuple extends it.
            known = self._value(statement.target, env) > Level.UNKNOWN
            self._assign(statement.target, Level.ARRAY if level and known else Level.UNKNOWN, env, None)
        elif isinstance(statement, ast.If):
            self._truth(statement.test, env)
            self._fork([statement.body, statement.orelse], env)
        elif isinstance(statement, ast.While):
            self._truth(statement.test, env)
            self._fork([statement.body, []], env)
            self._block(statement.orelse, env)
        elif isinstance(statement, ast.For | ast.AsyncFor):
            level = self._value(statement.iter, env)
            self._assign(statement.target, Level.ARRAY if level == Level.ARRAY else Level.UNKNOWN, env, None)
            self._fork([statement.body, []], env)
            self._block(statement.orelse, env)
        elif isinstance(statement, ast.Try):
            self._fork([[*statement.body, *statement.orelse], *(h.body for h in statement.handlers)], env)
            self._block(statement.finalbody, env)
        elif isinstance(statement, ast.With | ast.AsyncWith):
            callees = {self._scopes.callee(item.context_expr) for item in statement.items}
            if "jax.ensure_compile_time_eval" in callees or "jax.disable_jit" in callees:
                return
            for item in statement.items:
                self._value(item.context_expr, env)
                if item.optional_vars is not None:
                    self._assign(item.optional_vars, Level.UNKNOWN, env, None)
            self._block(statement.body, env)
        elif isinstance(statement, ast.Assert):
            self._truth(statement.test, env)
        elif isinstance(statement, ast.Return | ast.Expr):
            if statement.value is not None:
                self._value(statement.value, env)
        elif isinstance(statement, ast.Match):
            self._value(statement.subject, env)
            self._fork([case.body for case in statement.cases] + [[]], env)
        elif isinstance(statement, ast.Delete):
            for target in statement.targets:
                self._assign(target, Level.UNKNOWN, env, None)
        elif isinstance(statement, ast.Raise) and statement.exc is not None:
            self._value(statement.exc, env)

    def _fork(self, branches: Sequence[Sequence[ast.stmt]], env: Env) -> None:
        ends = forked(branches, env, self._block)
        for name in {name for end in ends for name in end}:
            env[name] = min((end.get(name, Level.UNKNOWN) for end in ends), default=Level.UNKNOWN)

    def _assign(self, target: ast.expr, level: Level, env: Env, value: ast.expr | None) -> None:
        if isinstance(target, ast.Name):
            env[target.id] = level
        elif isinstance(target, ast.Tuple | ast.List):
            if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
                for one, given in zip(target.elts, value.elts, strict=True):
                    self._assign(one, self.levels.get(given, Level.UNKNOWN), env, given)
                return
            for one in target.elts:
                starred = isinstance(one, ast.Starred)
                self._assign(one.value if starred else one, Level.UNKNOWN if starred else level, env, None)
        elif isinstance(target, ast.Subscript):
            self._value(target.value, env)
            self._value(target.slice, env)
        elif isinstance(target, ast.Attribute):
            self._value(target.value, env)

    # Expressions

    def _truth(self, test: ast.expr, env: Env) -> None:
        """Evaluate a test, and note the arrays in it whose truth is asked for."""
        self._value(test, env)
        self._ask(test)

    def _ask(self, test: ast.expr) -> None:
        if isinstance(test, ast.BoolOp):
            # `x is None or x > 0` and the like know more of x than can be seen here.
            if any(_is_guard(value) for value in test.values):
                return
            for value in test.values:
                self._ask(value)
        elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self._ask(test.operand)
        elif self.levels.get(test) == Level.ARRAY and not self._guarded(test):
            self.truths.append(test)

    def _guarded(self, node: ast.AST) -> bool:
        """Whether the function around a node looks for tracers itself."""
        for function in self._scopes.functions_around(node):
            if any(isinstance(n, ast.Name | ast.Attribute) and _ends_in_guard(n) for n in ast.walk(function)):
                return True
        return False

    def _value(self, node: ast.expr, env: Env) -> Level:
        level = self._level(node, env)
        self.levels[node] = level
        return level

    def _all(self, nodes: Sequence[ast.expr], env: Env) -> list[Level]:
        return [self._value(node, env) for node in nodes]

    def _level(self, node: ast.expr, env: Env) -> Level:
        match node:
            case ast.Name():
                return env.get(node.id, Level.UNKNOWN)
            case ast.BinOp():
                levels = self._all([node.left, node.right], env)
                odd = any(isinstance(n, _NO_NUMBERS) for n in (node.left, node.right)) or _is_text(node.left)
                return Level.ARRAY if max(levels) and not odd else Level.UNKNOWN
            case ast.UnaryOp():
                level = self._value(node.operand, env)
                if isinstance(node.op, ast.Not):
                    self._ask(node.operand)
                    return Level.UNKNOWN
                return Level.ARRAY if level else Level.UNKNOWN
            case ast.Compare():
                return self._compare(node, env)
            case ast.BoolOp():
                levels = self._all(node.values, env)
                # The last operand is handed on, the others are asked for their truth.
                if not any(_is_guard(value) for value in node.values):
                    for value in node.values[:-1]:
                        self._ask(value)
                return min(levels)
            case ast.Call():
                return self._call(node, env)
            case ast.Attribute():
                return self._attribute(node, env)
            case ast.Subscript():
                level = self._value(node.value, env)
                self._value(node.slice, env)
                return level
            case ast.IfExp():
                self._truth(node.test, env)
                return min(self._all([node.body, node.orelse], env))
            case ast.NamedExpr():
                level = self._value(node.value, env)
                self._assign(node.target, level, env, node.value)
                return level
            case ast.Lambda():
                self._function(node, env)
                return Level.UNKNOWN
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                self._comprehension(node, env)
                return Level.UNKNOWN
            case _:
                self._all([n for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr)], env)
                return Level.UNKNOWN

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, env: Env) -> None:
        inner = dict(env)
        for part in node.generators:
            level = self._value(part.iter, inner)
            self._assign(part.target, Level.ARRAY if level == Level.ARRAY else Level.UNKNOWN, inner, None)
            for test in part.ifs:
                self._truth(test, inner)
        self._all([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt], inner)

    def _compare(self, node: ast.Compare, env: Env) -> Level:
        sides = [node.left, *node.comparators]
        levels = self._all(sides, env)
        if any(isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) for op in node.ops):
            return Level.UNKNOWN
        if any(isinstance(side, _NO_NUMBERS) or _is_text(side) for side in sides):
            return Level.UNKNOWN
        ordered = any(isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in node.ops)
        # Containers can be equal, but not less than something.
        return Level.ARRAY if max(levels) == Level.ARRAY or (max(levels) and ordered) else Level.UNKNOWN

    def _attribute(self, node: ast.Attribute, env: Env) -> Level:
        level = self._value(node.value, env)
        if node.attr in _SAME and level:
            return Level.ARRAY
        return Level.GIVEN if level == Level.CARRIED and node.attr not in _NOT_LEAVES else Level.UNKNOWN

    def _call(self, node: ast.Call, env: Env) -> Level:
        own = self._value(node.func, env) if not isinstance(node.func, ast.Attribute) else Level.UNKNOWN
        if isinstance(node.func, ast.Attribute):
            own = self._value(node.func.value, env)
        given = self._all([*node.args, *(k.value for k in node.keywords)], env)
        name = self._scopes.name(node.func)
        if name is not None and name.startswith(_ARRAYS):
            if name in _STATIC or name.rsplit(".", 1)[0] in _STATIC:
                return Level.UNKNOWN
            if name in _CONTAINERS or name.startswith("jax.lax.linalg."):
                return Level.GIVEN
            return Level.ARRAY
        if name == "abs" and any(given):
            return Level.ARRAY
        if isinstance(node.func, ast.Attribute) and own:
            if node.func.attr in _METHODS:
                return Level.ARRAY
            at = node.func.value
            update = node.func.attr in _UPDATES and isinstance(at, ast.Subscript)
            if (
                update
                and isinstance(at, ast.Subscript)
                and isinstance(at.value, ast.Attribute)
                and at.value.attr == "at"
            ):
                return Level.ARRAY
        return Level.UNKNOWN


_NO_NUMBERS = (ast.Tuple, ast.List, ast.Dict, ast.Set, ast.JoinedStr, ast.ListComp, ast.GeneratorExp, ast.DictComp)
_NOT_LEAVES = frozenset({"shape", "ndim", "dtype", "size", "itemsize", "nbytes", "sharding", "weak_type", "aval"})


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and (isinstance(node.value, str | bytes) or node.value is None)


def _is_guard(node: ast.expr) -> bool:
    """Whether an operand asks what another value is, and not how large."""
    if isinstance(node, ast.UnaryOp):
        return _is_guard(node.operand)
    if isinstance(node, ast.Compare):
        return any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _ASKS


_ASKS = frozenset({"isinstance", "hasattr", "callable", "issubclass"})


def _ends_in_guard(node: ast.Name | ast.Attribute) -> bool:
    return (node.id if isinstance(node, ast.Name) else node.attr) in _GUARDS
