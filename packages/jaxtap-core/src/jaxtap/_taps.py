"""Taps on single equations: what a user hands to `taps=`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp

from jaxtap._config import ByIdentity, HostTap, Selection, Tap, check_callable, check_flag, selection
from jaxtap._types import SelectSpec, WhereSpec
from jaxtap._where import check_where

NON_FINITE = "NaN/Inf"


@dataclasses.dataclass(frozen=True)
class PrimitiveTap:
    """A tap on equations, or on the state of loops. `on`, `watch_nan`, `trip` and `print` make it.

    Attributes:
      prim_name: name of a primitive as `jaxtap.primitives` lists it, several names, or a glob such as `"dot*"`.
      select: a traced function of the outputs: what is sent. None sends all.
      alert: called on the host with what arrived; a true result prints one line to stderr.
      label: what that line says.
      output: index of the one output to look at; None for all.
      once: print at most one line.
      where: a glob over addresses, the name of a function, or a predicate over the address.
      trips_on: a traced predicate of the outputs: nothing is sent until it is true.
      prints: whether the line shows the value.
      inner: of one that looks at the state of loops, whether it looks at each step of inner ones.
      kind: `"primitive"`, or what of a loop is looked at: `"carry"`, `"output"`, `"state"`, `"cotangent"`.

    >>> tap = watch_nan("cholesky", once=True)
    >>> tap.prim_name, tap.label, tap.is_tripwire
    ('cholesky', 'NaN/Inf', True)
    """

    prim_name: str | tuple[str, ...]
    select: SelectSpec = None
    alert: Callable[[Any], object] | None = None
    label: str | None = None
    output: int | None = None
    once: bool = False
    where: WhereSpec = None
    trips_on: Callable[[Any], Any] | None = dataclasses.field(default=None, repr=False)
    prints: bool = dataclasses.field(default=False, repr=False)
    kind: str = "primitive"
    inner: bool = dataclasses.field(default=False, repr=False)

    @property
    def is_tripwire(self) -> bool:
        """Whether nothing leaves the device until something happens."""
        return self.trips_on is not None or self.kind == "state"

    @property
    def device(self) -> Tap:
        """The part of it that changes what is compiled."""
        return Tap(
            kind=self.kind,
            primitives=_names(self.prim_name) if self.kind == "primitive" else (),
            selection=_selection(self.select),
            output=self.output,
            where=check_where(self.where),
            trips_on=None if self.trips_on is None else ByIdentity(self.trips_on),
            inner=self.inner,
        )

    @property
    def host(self) -> HostTap:
        """The part of it that runs on the host."""
        return HostTap(self.alert, self.label, self.once, self.prints, self.is_tripwire)


def _names(prim: Any) -> tuple[str, ...]:
    return (prim,) if isinstance(prim, str) else tuple(prim)


def _selection(select: SelectSpec) -> Selection:
    return selection("select", select)


def _checked(
    prim: Any,
    select: Any,
    alert: Any,
    output: Any,
    where: WhereSpec,
) -> str | tuple[str, ...]:
    names: tuple[Any, ...] = _names(prim) if isinstance(prim, (str, list, tuple)) else ()
    if not names or not all(isinstance(name, str) and name for name in names):
        raise TypeError(
            f"prim must be the name of a primitive, several names, or a glob such as 'dot*'; got {prim!r}. "
            "jaxtap.primitives(f, *args) lists the names."
        )
    check_callable("select", select)
    check_callable("alert", alert)
    check_where(where)
    if output is not None and (isinstance(output, bool) or not hasattr(output, "__index__")):
        raise TypeError(f"output must be the index of an output, or None for all; got {output!r}.")
    return names[0] if len(names) == 1 else names


def on(
    prim_name: str | Sequence[str],
    select: Callable[..., Any] | None = None,
    alert: Callable[[Any], object] | None = None,
    label: str | None = None,
    output: int | None = None,
    once: bool = False,
    where: WhereSpec = None,
) -> PrimitiveTap:
    """A tap on every equation of a primitive, in loops and outside of them.

    Its events have kind `"primitive"`, an address such as `"scan[0]/jit[0]/cholesky[0]"`, the step of the
    loop around, and -1 outside of any. In a loop, they come from a copy of the step that starts from the same
    state, so that the program's own result is not touched; a value may differ from the program's own in its
    last bit.

    Args:
      prim_name: name of a primitive as `jaxtap.primitives` lists it, several names, or a glob such as `"dot*"`.
      select: a traced function of the tuple of outputs (of the one output where `output` is given); a second
        parameter, or one named `path`, receives the address. What it returns is sent. None sends the outputs.
      alert: called on the host with the value of each event; a true result prints one line to stderr, as
        `[tap] FAIL scan[0]/jit[0]/cholesky[0] 7/25: singular`.
      label: the text of that line; the primitive's name if None.
      output: index among the primitive's outputs, whose order may differ from that of the function that a user
        calls: `eigh_p` returns eigenvectors first.
      once: print at most one line.
      where: which equations are seen: those at addresses that a glob fits, such as `"scan[0]/**"`, those written in a
        function of that name, such as `"one_step"`, or those for whose address a predicate is true.

    Raises:
      TypeError: if an argument is of the wrong type.

    >>> import jax, jax.numpy as jnp
    >>> def step(c, x):
    ...     return c * 0.5 + x, None
    >>> g, rec = record(lambda c: jax.lax.scan(step, c, jnp.arange(3.0)), taps=[on("mul", output=0)])
    >>> _ = g(8.0)
    >>> [(e.path, e.step, float(e.value)) for e in rec.events if e.kind == "primitive"]
    [('scan[0]/mul[0]', 0, 4.0), ('scan[0]/mul[0]', 1, 2.0), ('scan[0]/mul[0]', 2, 1.5)]
    """
    names = _checked(prim_name, select, alert, output, where)
    return PrimitiveTap(names, select, alert, label, output, once, where)


def print(
    prim_name: str | Sequence[str],
    output: int | None = None,
    select: Callable[..., Any] | None = None,
    label: str | None = None,
    once: bool = False,
    where: WhereSpec = None,
) -> PrimitiveTap:
    """A tap that prints each value to stderr, as `[tap] scan[0]/mul[0] 1/5: array([0.8499], dtype=float32)`.

    Args:
      prim_name: as in `on`.
      output: as in `on`; None prints the outputs together.
      select: as in `on`.
      label: kept with the tap; the line shows the value instead.
      once: print the first value only.
      where: as in `on`.

    Raises:
      TypeError: if an argument is of the wrong type.

    >>> import jax.numpy as jnp
    >>> import jaxtap
    >>> with record(taps=[jaxtap.print("sin")]):
    ...     y = jnp.sin(0.5)
    [tap] sin[0] -1/?: array([0.4794], dtype=float32)
    """
    names = _checked(prim_name, select, None, output, where)
    return PrimitiveTap(names, select, _always, label, output, once, where, prints=True)


def watch_nan(
    prim_name: str | Sequence[str] | None = None,
    label: str = NON_FINITE,
    output: int | None = None,
    once: bool = False,
    where: WhereSpec = None,
    backward: bool = False,
    inner: bool = False,
) -> PrimitiveTap:
    """A tripwire: tells when a value turns NaN or infinite. Until then nothing leaves the device.

    With the name of a primitive, its outputs are looked at, everywhere. Its events hold `False`: the outputs are
    not all finite. Each prints a line, as `[tap] FAIL scan[0]/jit[0]/cholesky[0] 7/25: NaN/Inf`.

    Without a name, the settled state of every outermost loop, carry and outputs, is looked at after each step.
    When a leaf turns NaN or infinite, that one step is evaluated again, equation by equation, and the event names
    the equation that has made such a value out of finite ones: its address, step, lane, source line, and what its
    operands were. The event's value is a dictionary: counts `nan` and `inf` of the output, and for each of the
    `operands` its finite range `low` to `high` (of a complex one, in magnitude) and its counts. If an inner loop
    made the value, that loop's own step and equation are named. If the loop was given the value, as in its `xs`,
    the event has kind `"carry"` and names the input. A value that turns finite again within one outer step is not
    seen. It prints a line, as
    `[tap] FAIL scan[0]/log[0] 7/25: NaN/Inf: model.py:12 (step), operands in [-0.5, 3.2]`.

    With `backward`, the cotangent of each scan's carry is looked at in the gradient pass: the event, of kind
    `"backward"`, names the step whose gradient turned it NaN or infinite, though the forward pass may be finite
    there. Its value counts the elements that are not finite, by leaf. `jnp.where` around a `sqrt` at zero is the
    classic.

    `sample_every` does not apply: every step is looked at.

    Args:
      prim_name: as in `on`; None looks at the state of loops.
      label: the text of the line.
      output: as in `on`; None looks at all outputs. Outputs that are no floating-point numbers are finite.
      once: print at most one line.
      where: as in `on`, for the equation or the loop.
      backward: look at the gradient pass instead.
      inner: of the state of loops, look at each step of inner loops, too, and so at what turns finite again within one
        outer step, such as a trial point of a line search. On CPU that takes the outer step's work once more.

    Raises:
      TypeError: if an argument is of the wrong type.
      ValueError: if `output` is given without a primitive, or `backward` or `inner` with one.

    >>> import jax, jax.numpy as jnp
    >>> def step(x, _):
    ...     return jnp.log(x), None
    >>> with record(taps=[watch_nan()]) as rec:
    ...     result = jax.lax.scan(step, 4.0, None, length=5)
    [tap] FAIL scan[0]/log[0] 3/5: NaN/Inf: ...:2 (step), operands in [-1.119, -1.119]
    >>> event = rec.events[0]
    >>> event.path, event.step, round(float(event.value["operands"][0]["low"]), 3)
    ('scan[0]/log[0]', 3, -1.119)
    """
    if check_flag("inner", inner) and (prim_name is not None or backward):
        raise ValueError("inner=True looks at the state of inner loops: leave prim_name and backward out.")
    if backward:
        if prim_name is not None or output is not None:
            raise ValueError("backward=True looks at the cotangents of carries: leave prim_name and output out.")
        check_where(where)
        return PrimitiveTap(
            "", _count_by_leaf, _always, label, None, once, where, trips_on=_any_non_finite, kind="cotangent"
        )
    if prim_name is None:
        if output is not None:
            raise ValueError("output= chooses among the outputs of a primitive: pass prim_name too, or leave it out.")
        check_where(where)
        return PrimitiveTap("", None, _always, label, None, once, where, kind="state", inner=inner)
    names = _checked(prim_name, None, None, output, where)
    return PrimitiveTap(names, _all_finite, _is_false, label, output, once, where, trips_on=_any_non_finite)


def trip(
    predicate: Callable[[Any], Any],
    select: SelectSpec = None,
    label: str = "tripped",
    on: str | Sequence[str] = "carry",
    once: bool = False,
    where: WhereSpec = None,
) -> PrimitiveTap:
    """A tripwire of one's own: tells when a predicate, decided on the device, is true. Until then nothing leaves it.

    Args:
      predicate: a traced function of the leaves of a loop's state (`Leaves`), or of a primitive's outputs; a true
        element anywhere in what it returns is a trip.
      select: what is sent then; as for `jaxtap.record`. None sends everything.
      label: the text of the line that is printed.
      on: `"carry"` for the state of each loop after each step, `"output"` for what a scan step returns, or the name
        of a primitive, several, or a glob.
      once: print at most one line.
      where: as in `on`.

    Raises:
      TypeError: if an argument is of the wrong type.

    >>> import jax, jax.numpy as jnp
    >>> def step(x, _):
    ...     return x * 3.0, None
    >>> with record(taps=[trip(lambda leaves: leaves[0] > 20.0, select="x")]) as rec:
    ...     result = jax.lax.scan(step, 1.0, None, length=4)
    [tap] FAIL scan[0] 2/4: tripped
    [tap] FAIL scan[0] 3/4: tripped
    >>> [(event.step, float(event.value)) for event in rec.events]
    [(2, 27.0), (3, 81.0)]
    """
    if not callable(predicate):
        raise TypeError(f"predicate must be a traced function of the leaves; got {type(predicate).__name__}.")
    if on in ("carry", "output"):
        check_where(where)
        _selection(select)
        return PrimitiveTap("", select, _always, label, None, once, where, trips_on=predicate, kind=str(on))
    names = _checked(on, select, None, None, where)
    return PrimitiveTap(names, select, _always, label, None, once, where, trips_on=predicate)


def _count_by_leaf(leaves: Any) -> dict[str, Any]:
    return {
        name: jnp.sum(~jnp.isfinite(leaf), dtype=jnp.int32)
        for name, leaf in zip(leaves.names, leaves, strict=True)
        if jnp.issubdtype(leaf.dtype, jnp.inexact)
    }


def _always(_: Any) -> bool:
    return True


def _is_false(value: Any) -> bool:
    return not value


def _all_finite(outputs: Any) -> Any:
    return ~_any_non_finite(outputs)


def _any_non_finite(outputs: Any) -> Any:
    leaves = outputs if isinstance(outputs, tuple) else (outputs,)
    found = [~jnp.isfinite(leaf).all() for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return jnp.stack(found).any() if found else jnp.bool_(False)
