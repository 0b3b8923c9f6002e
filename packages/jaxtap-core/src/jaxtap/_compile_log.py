"""The log of compiles: one row a program, as a sequence, as a table and as text."""

from __future__ import annotations

import collections
import dataclasses
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

from jaxtap._retrace import Change

if TYPE_CHECKING:
    import pandas as pd


@dataclasses.dataclass(frozen=True)
class Compile:
    """One program that JAX has made, or a trace that has not become one.

    Attributes:
      name: the function's name.
      source: where the function was written, as `"file.py:17 (train_step)"`; empty where JAX does not say.
      called_from: the line that called it.
      arguments: name and type of each leaf of its arguments, and the values of static arguments.
      number: which trace of that function it is, from 1, counted since the log was opened; 0 where JAX told of no
        trace: it had one already, and only lowered or compiled again, or the call is under `vmap` or `grad`.
      changes: what made JAX trace or compile it again; empty for the first time.
      trace_seconds: how long tracing took, with all that was compiled on the way; None where it was not traced.
      lowering_seconds: how long it took to write the jaxpr as StableHLO; None where it was not lowered.
      compile_seconds: how long XLA took, or the reading of the persistent cache; None where it was not compiled.
      cache: what the persistent cache did: `"hit"`, `"written"`, `"not written"`; empty where nothing was compiled.
      cache_note: why nothing was written.
      time: when the first of its stations began, in seconds since the epoch.
      elapsed: the same, in seconds since the log was opened.
      of_jax: whether it is a function of JAX's own, such as an operation that is run outside of any `jit`.

    >>> import jax, jax.numpy as jnp
    >>> @jax.jit
    ... def double(x):
    ...     return 2 * x
    >>> with compiles() as log:
    ...     y = double(1.0)
    >>> (row,) = log.of("double")
    >>> row.arguments, row.number, row.cause, row.seconds > 0.0
    ((('x', 'f32[]'),), 1, 'first', True)
    """

    name: str
    source: str = ""
    called_from: str = ""
    arguments: tuple[tuple[str, str], ...] = ()
    number: int = 0
    changes: tuple[Change, ...] = ()
    trace_seconds: float | None = None
    lowering_seconds: float | None = None
    compile_seconds: float | None = None
    cache: str = ""
    cache_note: str = ""
    time: float = 0.0
    elapsed: float = 0.0
    of_jax: bool = False

    @property
    def seconds(self) -> float:
        """Tracing, lowering and compiling together."""
        return sum(s or 0.0 for s in (self.trace_seconds, self.lowering_seconds, self.compile_seconds))

    @property
    def cause(self) -> str:
        """The cause of the first change, or `"first"`."""
        return self.changes[0].cause if self.changes else "first"

    @property
    def reason(self) -> str:
        """Why it was made, in a sentence."""
        if not self.changes:
            return f"{self.name}: first time in this log"
        what = f"traced again ({_ordinal(self.number)} time)" if self.number else "compiled again"
        return f"{self.name} {what}: {', '.join(dict.fromkeys(map(str, self.changes)))}"


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


class CompileLog(Sequence[Compile]):
    """What `jaxtap.compiles` has seen, oldest first: a sequence of `Compile`. Grows while programs are made.

    Attributes:
      began: when it was opened, in seconds since the epoch.

    >>> import jax
    >>> with compiles() as log:
    ...     y = jax.jit(lambda x: x + 1.0)(1.0)
    >>> [row.name for row in log if not row.of_jax], log.report().splitlines()[0].endswith("s")
    (['<lambda>'], True)
    """

    def __init__(self) -> None:
        self.began = time.time()
        self._rows: list[Compile] = []

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Compile: ...
    @overload
    def __getitem__(self, index: slice) -> list[Compile]: ...
    def __getitem__(self, index: int | slice) -> Compile | list[Compile]:
        return self._rows[index]

    def __iter__(self) -> Iterator[Compile]:
        return iter(list(self._rows))

    def of(self, name: str) -> list[Compile]:
        """Those of the functions of that name."""
        return [row for row in self if row.name == name]

    def put(self, index: int | None, row: Compile) -> int:
        """Add a row, or replace one; returns its index."""
        if index is None:
            self._rows.append(row)
            return len(self._rows) - 1
        self._rows[index] = row
        return index

    def df(self) -> pd.DataFrame:
        """The log as a table, one row a `Compile`, in order.

        Columns: its fields, and `seconds`, `cause`, then `argument`, `before` and `after` of the first change.

        Raises:
          ImportError: without pandas.
        """
        try:
            import pandas as pd  # noqa: PLC0415 - an extra: importing jaxtap must not need it
        except ImportError as error:
            raise ImportError(
                "CompileLog.df() needs pandas: pip install 'jaxtap-core[pandas]'. Without it, iterate over the log."
            ) from error
        return pd.DataFrame([_flat(row) for row in self], columns=[*_flat(Compile(""))])

    def report(self) -> str:
        """The log as text, the longest first; JAX's own functions in one line.

        Columns: seconds in all and of each station, and when it began, in seconds since the log was opened.
        """
        rows = sorted((row for row in self if not row.of_jax), key=lambda row: -row.seconds)
        own = [row for row in self if row.of_jax]
        lines = [f"{len(self)} compiles, {sum(row.seconds for row in self):.3f} s"]
        if rows:
            lines.append("   total    trace    lower  compile        at  cache        function")
        for row in rows:
            lines += [f"{_seconds(row)}  {row.cache:<11}  {row.name}  {row.source}", f"{'':10}{_why(row)}"]
        if own:
            names = list(dict.fromkeys(row.name for row in own))
            more = ", ..." if len(names) > 5 else ""
            seconds = sum(row.seconds for row in own)
            lines.append(f"{seconds:8.3f}  {len(own)} of JAX's own functions: {', '.join(names[:5])}{more}")
        notes = collections.Counter(row.cache_note for row in self if row.cache_note)
        lines += [f"{count} not written to the persistent cache: {note}" for note, count in notes.items()]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<CompileLog: {len(self)} compiles, {sum(row.seconds for row in self):.3f} s>"


def _seconds(row: Compile) -> str:
    times = (row.seconds, row.trace_seconds, row.lowering_seconds, row.compile_seconds)
    return f"{' '.join('       -' if t is None else f'{t:8.3f}' for t in times)} {row.elapsed:9.3f}"


def _why(row: Compile) -> str:
    return row.reason if row.changes else f"first time in this log, called from {row.called_from}"


def _flat(row: Compile) -> dict[str, Any]:
    first = row.changes[0] if row.changes else Change("first", "")
    table = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    del table["changes"]
    more = {"seconds": row.seconds, "cause": row.cause}
    return table | more | {"argument": first.argument, "before": first.before, "after": first.after}
