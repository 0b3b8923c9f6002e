"""The front door: a context that sees every call of an optimizer, and the one-line explicit form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from jaxtap import TapEvent
from jaxtap.internal import (
    ByIdentity,
    Choices,
    Plan,
    Row,
    Selection,
    Tripwire,
    View,
    Watch,
    check_count,
    chosen,
    documented,
)
from jaxtap_optax._hook import HOOK, Wanted, identity_of, patches, seen
from jaxtap_optax._measure import of_call
from jaxtap_optax._tripwires import tripwires as defaults

COLUMNS = ("grad_norm", "update_norm", "param_norm", "update_ratio", "nonfinite")

T = TypeVar("T")


def _columns(event: TapEvent) -> dict[str, Any] | None:
    return event.value if event.kind == "mark" else None


@documented
def watch_updates(
    tx: Any = None,
    *,
    depth: int = 0,
    tripwires: bool | Sequence[Tripwire] = True,
    on_event: Callable[[TapEvent], object] | None = None,
    on_row: Callable[[Row], object] | None = None,
    capacity: int | None = None,
    threads: str = "own",
) -> Watch:
    """See every call of an optimizer's `update` in a block of code: one row a call.

    `with watch_updates() as seen:` sees the calls of any `optax.GradientTransformation`, however it was built, in
    jitted code, in loops, under `vmap`, also in functions that were compiled before. `g = watch_updates()(f)` watches
    a function. Code that unpacks `init, update = tx`, or has jitted `tx.update` itself before, calls a bare function
    that no lens can see: there, `tx = jaxtap_optax.watched(tx)` is the explicit form.

    A row has `grad_norm` (of what goes in), `update_norm` (of what comes out), `nonfinite` (elements of the gradient
    that are not finite), `param_norm` and `update_ratio` where the call is given the parameters, `value` where it is
    given the loss, the norm after each stage of a chain (`stage_norm/0 clip_by_global_norm`, and `clip_before`,
    `clip_after`, `clip_ratio`), and each named selector of this package that fits something in the optimizer's new
    state. All is computed on the device and sent at once. Norms are those of `optax.tree.norm`.

    Args:
      tx: watch this transformation's calls alone, wherever they are; None watches all.
      depth: watch calls within this many others, too. 0 sees the outermost: of a chain, the chain.
      tripwires: True for `jaxtap_optax.tripwires()`, False for none, or a list.
      {options}

    Returns:
      A context; also what it is bound to. `df()`, `rows` and `trips` are what it has seen.

    Raises:
      ValueError: if `depth` or `capacity` is too small.
      TypeError: if `tripwires` is something else.

    >>> import jax, jax.numpy as jnp, optax
    >>> tx = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.5))
    >>> params = jnp.array([3.0, 4.0])
    >>> with watch_updates() as seen:
    ...     updates, state = tx.update(params, tx.init(params), params)
    >>> row = seen.rows[0]
    >>> round(row["grad_norm"], 4), round(row["clip_after"], 4), round(row["update_norm"], 4)
    (5.0, 1.0, 0.5)
    """
    wanted = Wanted(
        check_count("depth", depth, 0, "calls around one that is seen"),
        None if tx is None else ByIdentity(identity_of(tx)),
    )
    plan = Plan(
        name="watch_updates",
        view=View(select=None, marks=((("*",), Selection(function=ByIdentity(of_call))),), hooks=((HOOK, wanted),)),
        columns=_columns,
        looked_for=(
            "calls of the update method of an optax.GradientTransformation. Code that unpacks init, update = tx calls "
            "a bare function: use tx = jaxtap_optax.watched(tx) there"
        ),
        patches=patches,
        first=COLUMNS,
    )
    return Watch(plan, Choices(chosen(tripwires, defaults), on_event, on_row, capacity, threads))


def watched(tx: T) -> T:
    """A transformation that does what `tx` does, and whose calls `watch_updates` sees also where it is unpacked.

    Without an open `watch_updates`, it adds nothing to the program.

    Args:
      tx: any `optax.GradientTransformation`, or `optax.MultiSteps`.

    Raises:
      TypeError: if it is neither.

    >>> import jax.numpy as jnp, optax
    >>> init, update = watched(optax.sgd(0.1))
    >>> with watch_updates() as seen:
    ...     updates, state = update(jnp.ones(4), init(jnp.ones(4)))
    >>> seen.rows[0]["grad_norm"]
    2.0
    """
    if hasattr(tx, "gradient_transformation"):
        return watched(cast(Any, tx).gradient_transformation())
    if not isinstance(tx, tuple) or not hasattr(tx, "update"):
        raise TypeError(f"tx must be an optax.GradientTransformation or optax.MultiSteps; got {type(tx).__name__}.")
    plain: Any = tx
    init, update = plain
    return tx if hasattr(update, "jaxtap_identity") else cast(T, plain._replace(init=init, update=seen(update)))
