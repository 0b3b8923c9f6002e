"""Named selectors: what a library calls a value, found in a loop's state by type and field, never by position."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from jaxtap._leaves import Leaves, SelectError, parts

# Type name and field of a value: `("ScaleByAdamState", "mu")`. The field may be dotted; an empty type fits every one.
# Of a state, only the first that fits counts, so that one without a type is best the last.
Field = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class _Found:
    """A value that a selector fits.

    Attributes:
      field: by which of its fields.
      path: where it is.
      positions: its leaves among all leaves.
    """

    field: Field
    path: str
    positions: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Selector:
    """A selector with a name. Pass it as `select=`, or call it with a state to read the value there.

    A value is found by the name of the type that holds it and by its field. Of a loop within another JAX keeps no
    types: there, as wherever a type has got lost, only a field without one helps, looked for in the leaf's dotted name.

    Attributes:
      name: what it is called.
      fields: where the value may be, in order of preference: the first that is there counts.
      reduce: from the leaves of the value to what is sent; None if the value is one leaf, sent as it is.
      ending: of the leaves of the value, only those whose names end so; empty for all.

    >>> from typing import NamedTuple
    >>> class Dual(NamedTuple):
    ...     step_size: float
    >>> Selector("step_size", (("Dual", "step_size"),))({"a": Dual(0.5)})
    0.5
    """

    name: str
    fields: tuple[Field, ...]
    reduce: Callable[[list[Any]], Any] | None = None
    ending: str = ""

    @property
    def leaf_names(self) -> tuple[str, ...]:
        """What a loop that has no such value is told to lack."""
        return (self.name,)

    def positions(self, names: Sequence[str], treedef: Any) -> list[int]:
        """Positions of the leaves of the value among those of a loop's state; empty where there is none.

        A loop within another, whose types are not known and where the field alone fits several values, has none.

        Raises:
          SelectError: if there are several such values.
        """
        found = self._found(names, treedef)
        return list(found.positions) if found is not None else []

    def __call__(self, state: Any) -> Any:
        """The value in a state; from the leaves that `positions` has found, what is sent.

        Raises:
          SelectError: if the state has no such value, or several.
        """
        if isinstance(state, Leaves):
            leaves = list(state)
        else:
            with_paths, treedef = jax.tree_util.tree_flatten_with_path(state)
            names = [jax.tree_util.keystr(path) for path, _ in with_paths]
            found = self._found(names, treedef)
            if found is None:
                raise SelectError(
                    f"there is no {self.name} here, which is {_listed(self.fields)}; there is: "
                    f"{', '.join(dict.fromkeys(f'{t}.{f}' if t else f for t, f in _all_fields(state))) or 'nothing'}."
                )
            leaves = [with_paths[i][1] for i in found.positions]
        return self._made(leaves)

    def every(self, state: Any) -> dict[str, Any]:
        """All such values in a state, by their place in it; none is no error."""
        with_paths, treedef = jax.tree_util.tree_flatten_with_path(state)
        names = [jax.tree_util.keystr(path) for path, _ in with_paths]
        return {each.path: self._made([with_paths[i][1] for i in each.positions]) for each in self._all(names, treedef)}

    def _made(self, leaves: list[Any]) -> Any:
        return leaves[0] if self.reduce is None else self.reduce(leaves)

    def _all(self, names: Sequence[str], treedef: Any) -> list[_Found]:
        """The values that the first of the fields fits that fits any."""
        found = list(_typed(self.fields, treedef)) if treedef is not None else []
        found += [each for field in self.fields if not field[0] for each in _untyped(field, names)]
        for field in self.fields:
            own = [self._ended(each, names) for each in found if each.field == field]
            own = [each for each in own if each.positions]
            if own:
                return own
        return []

    def _ended(self, found: _Found, names: Sequence[str]) -> _Found:
        if not self.ending:
            return found
        return dataclasses.replace(
            found, positions=tuple(i for i in found.positions if parts(names[i])[-1] == self.ending)
        )

    def _found(self, names: Sequence[str], treedef: Any) -> _Found | None:
        own = self._all(names, treedef)
        if len(own) > 1 and treedef is not None:
            raise SelectError(
                f"{self.name} may be any of {', '.join(each.path for each in own)}; write more of the one that you "
                f"mean, as in select={own[0].path.lstrip('.')!r}."
            )
        return own[0] if len(own) == 1 else None

    def __repr__(self) -> str:
        return self.name


def _listed(fields: Sequence[Field]) -> str:
    return " or ".join(f"{t}.{f}" if t else f for t, f in fields)


def _children(tree: Any) -> list[tuple[tuple[Any, ...], Any]]:
    """The parts of a node, each with the step that leads to it; none for a leaf."""
    found, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda node: node is not tree)
    return [(path, child) for path, child in found if path]


def _word(key: Any) -> str:
    return str(getattr(key, "name", getattr(key, "key", getattr(key, "idx", key))))


def _nodes(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    yield path, tree
    for step, child in _children(tree):
        yield from _nodes(child, (*path, *step))


def _all_fields(tree: Any) -> Iterator[Field]:
    """Type and field of everything that has a name."""
    for _, node in _nodes(tree):
        typed = hasattr(node, "_fields") or dataclasses.is_dataclass(node)
        for step, _ in _children(node):
            if not hasattr(step[0], "idx"):
                yield (type(node).__name__ if typed else "", _word(step[0]))


def _typed(fields: Sequence[Field], treedef: Any) -> Iterator[_Found]:
    """Values whose type and field fit, given the structure of a state."""
    tree = jax.tree_util.tree_unflatten(treedef, range(treedef.num_leaves))
    for path, node in _nodes(tree):
        for type_name, field in fields:
            if type_name and type(node).__name__ == type_name:
                inside = _under(node, tuple(field.split(".")))
                if inside is not None and jax.tree_util.tree_leaves(inside):
                    text = f"{jax.tree_util.keystr(path)}.{field}"
                    yield _Found((type_name, field), text, tuple(jax.tree_util.tree_leaves(inside)))


def _under(node: Any, words: tuple[str, ...]) -> Any:
    for word in words:
        node = next((child for step, child in _children(node) if _word(step[0]) == word), None)
    return node


def _untyped(field: Field, names: Sequence[str]) -> Iterator[_Found]:
    """Values whose dotted name has the field in it; what follows it is the inside of the value."""
    words = tuple(field[1].split("."))
    groups: dict[tuple[str, ...], list[int]] = {}
    for i, name in enumerate(names):
        own = parts(name)
        ends = [k for k in range(len(words), len(own) + 1) if own[k - len(words) : k] == words]
        if ends:
            groups.setdefault(own[: ends[0]], []).append(i)
    for own, positions in groups.items():
        yield _Found(field, ".".join(own), tuple(positions))
