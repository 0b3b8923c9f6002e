"""The part of a module that one of its functions needs."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterator


def excerpt(text: str, name: str) -> str | None:
    """The statements of a module that a top-level name needs, in their order; None where the module has no such name.

    Imports are cut down to what is used. Settings, as `jax.config.update(...)`, are kept.

    Args:
      text: the module's source.
      name: the name of a function at the top level.
    """
    tree = ast.parse(text)
    makers: dict[str, list[ast.stmt]] = {}
    for statement in tree.body:
        for bound in _binds(statement):
            makers.setdefault(bound, []).append(statement)
    if name not in makers:
        return None
    names: set[str] = set()
    waiting = [name, *(n for s in tree.body if _is_setting(s) for n in _reads(s))]
    while waiting:
        one = waiting.pop()
        if one in names:
            continue
        names.add(one)
        waiting += [
            read for statement in makers.get(one, ()) if not _is_import(statement) for read in _reads(statement)
        ]
    kept = [s for s in tree.body if _is_setting(s) or any(bound in names for bound in _binds(s))]
    return "\n".join(_source(text, statement, names) for statement in kept)


def _is_import(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Import | ast.ImportFrom)


def _is_setting(statement: ast.stmt) -> bool:
    """Whether a statement calls `jax.config.update` or the like, or asks for future syntax."""
    if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
        return True
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and ast.unparse(call.func).startswith(("jax.config.", "config.update"))


def imported(code: str) -> set[str]:
    """The names that the imports at the top level of some code bind."""
    return {name for statement in ast.parse(code).body if _is_import(statement) for name in _binds(statement)}


def _binds(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement at the top level binds."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name.split(".")[0]
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id


def _reads(statement: ast.stmt) -> Iterator[str]:
    """The names of the module that a statement uses; a function's own names are none of them."""
    return _globals(symtable.symtable(ast.unparse(statement), "<statement>", "exec"))


def _globals(table: symtable.SymbolTable) -> Iterator[str]:
    is_module = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (is_module or symbol.is_global()):
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _globals(inner)


def _source(text: str, statement: ast.stmt, names: set[str]) -> str:
    """A statement as it is written; an import with the names that are used."""
    if isinstance(statement, ast.Import | ast.ImportFrom) and not _is_setting(statement):
        used = [a for a in statement.names if (a.asname or a.name.split(".")[0]) in names]
        if isinstance(statement, ast.Import):
            return ast.unparse(ast.Import(used))
        return ast.unparse(ast.ImportFrom(statement.module, used, statement.level))
    decorators = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(d.lineno for d in decorators)])
    lines = text.splitlines()[first - 1 : statement.end_lineno]
    code = "\n".join(lines)
    return f"\n\n{code}\n\n" if isinstance(statement, ast.FunctionDef | ast.ClassDef) else code
