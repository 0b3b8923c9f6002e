"""Random keys that are used more than once."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from jaxtap_command._rules._base import Found, Rule
from jaxtap_command._rules._scopes import constant, forked, is_function, keyword, names_in, words
from jaxtap_command._rules._source import Source

# They make, look at or derive from a key without using it up.
_KEEPS = words(
    "key PRNGKey fold_in key_data wrap_key_data key_impl clone default_prng_impl key_dtype", prefix="jax.random."
)
# With one key they shuffle several arrays alike.
_ALIGNS = words("permutation choice shuffle", prefix="jax.random.")
_ROUNDS = 4

Used = dict[str, ast.Call]


class _Walk:
    """Follows the keys of one function from statement to statement."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._depth = 0
        self._turns: list[set[str]] = []
        self.found: dict[ast.Call, tuple[str, ast.Call]] = {}

    def block(self, body: Sequence[ast.AST], used: Used) -> None:
        for node in body:
            self.visit(node, used)

    def visit(self, node: ast.AST, used: Used) -> None:
        if isinstance(node, ast.If):
            self.visit(node.test, used)
            self._fork([node.body, node.orelse], used)
        elif isinstance(node, ast.IfExp):
            self.visit(node.test, used)
            self._fork([[node.body], [node.orelse]], used)
        elif isinstance(node, ast.For | ast.AsyncFor):
            self.visit(node.iter, used)
            self._loop([node.target, *node.body], used)
            self.block(node.orelse, used)
        elif isinstance(node, ast.While):
            self._loop([node.test, *node.body], used)
            self.block(node.orelse, used)
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            self._comprehension(node, used)
        elif isinstance(node, ast.Try):
            self._fork([[*node.body, *node.orelse], *(h.body for h in node.handlers)], used)
            self.block(node.finalbody, used)
        elif isinstance(node, ast.Match):
            self.visit(node.subject, used)
            self._fork([case.body for case in node.cases] + [[]], used)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
            if node.value is not None:
                self.visit(node.value, used)
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self.visit(target, used)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            for text in [t for t in used if t == node.id or t.startswith((f"{node.id}[", f"{node.id}."))]:
                del used[text]
        elif isinstance(node, ast.Subscript | ast.Attribute) and not isinstance(node.ctx, ast.Load):
            used.pop(ast.unparse(node), None)
        elif is_function(node) or isinstance(node, ast.ClassDef | ast.FunctionDef) or _asserts(node):
            # What is asserted is drawn again on purpose.
            pass
        else:
            self.block(list(ast.iter_child_nodes(node)), used)
            if isinstance(node, ast.Call):
                self._call(node, used)

    def _fork(self, branches: Sequence[Sequence[ast.AST]], used: Used) -> None:
        ends = forked(branches, used, self.block)
        used.clear()
        for end in ends:
            used.update(end)

    def _loop(self, body: Sequence[ast.AST], used: Used) -> None:
        inner = dict(used)
        self._depth += 1
        self._turns.append({name for part in body if isinstance(part, ast.expr) for name in _bound(part)})
        self.block(body, inner)
        # A second round finds what the first has used up. Loops in loops in loops would take 2**depth rounds.
        if self._depth <= _ROUNDS and not isinstance(body[-1], ast.Break | ast.Return | ast.Raise):
            self.block(body, inner)
        self._depth -= 1
        self._turns.pop()
        used.update(inner)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, used: Used) -> None:
        self.visit(node.generators[0].iter, used)
        parts: list[ast.AST] = []
        for generator in node.generators:
            parts.extend([generator.target, *generator.ifs])
        parts.extend([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])
        self._loop(parts, used)

    def _call(self, call: ast.Call, used: Used) -> None:
        name = self._source.name(call.func) or ""
        if not name.startswith("jax.random.") or name.count(".") != 2 or name in _KEEPS:
            return
        key = call.args[0] if call.args else keyword(call, "key")
        if key is None or not _is_place(key):
            return
        text = ast.unparse(key)
        first = used.get(text)
        if (
            first is not None
            and call not in self.found
            and not (self._aligned(first, call) or self._apart(first, call))
        ):
            self.found[call] = (text, first)
        used.setdefault(text, call)

    def _aligned(self, first: ast.Call, call: ast.Call) -> bool:
        """Whether the same function orders another array, which then goes with the first."""
        names = [self._source.name(one.func) for one in (first, call)]
        if names[0] != names[1] or names[0] not in _ALIGNS or min(len(first.args), len(call.args)) < 2:
            return False
        if first is call:
            return any(name in turn for name in names_in(call.args[1]) for turn in self._turns)
        return ast.unparse(first.args[1]) != ast.unparse(call.args[1])

    def _apart(self, first: ast.Call, call: ast.Call) -> bool:
        """Whether two calls split a key alike, and each takes another of its parts."""
        if ast.dump(first) != ast.dump(call) or self._source.name(call.func) != "jax.random.split":
            return False
        parts = (self._source.scopes.parent.get(one) for one in (first, call))
        return len({constant(part.slice) for part in parts if isinstance(part, ast.Subscript)} - {None}) == 2


def _bound(node: ast.AST) -> Iterator[str]:
    return (n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))


def _asserts(node: ast.AST) -> bool:
    """Whether it is an assertion: a statement, or a call of `assertEqual`, `assert_allclose` or the like."""
    if isinstance(node, ast.Call):
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        return name.startswith("assert")
    return isinstance(node, ast.Assert)


def _is_place(node: ast.AST) -> bool:
    """Whether an expression is a variable, or an element of one at a constant index."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Name) and isinstance(node.slice, ast.Constant)
    return isinstance(node, ast.Name)


def _reused(source: Source) -> Iterator[Found]:
    for scope in [source.tree, *(n for n in source.scopes.nodes if is_function(n))]:
        walk = _Walk(source)
        body = [scope.body] if isinstance(scope, ast.Lambda) else scope.body
        walk.block(body, {})
        for call, (key, first) in walk.found.items():
            if call is first:
                yield call, f"`{key}` is used again on each round of the loop"
            else:
                yield call, f"`{key}` was used up by `{ast.unparse(first.func)}` in line {first.lineno}"


REUSED = Rule(
    "J005",
    "a random key used twice",
    "The same key gives the same numbers: draws that should be independent are equal or correlated, and no error "
    "says so.",
    "Split first, `key, sub = jax.random.split(key)`, and use each key once; in a loop, `jax.random.fold_in(key, i)`.",
    _reused,
)
