"""What every context takes, checked once at the front door."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from jaxtap import TapEvent
from jaxtap.internal import Choices, Plan, Row, Tripwire, check_callable, check_count, chosen


class Options(TypedDict, total=False):
    """The options of a context, as a user passes them. `watch_warmup` says what each is."""

    tripwires: bool | Sequence[Tripwire]
    sample_every: int
    select: Any
    hooks: bool
    on_event: Callable[[TapEvent], object] | None
    on_row: Callable[[Row], object] | None
    capacity: int | None
    threads: str


@dataclasses.dataclass(frozen=True)
class Chosen:
    """The options of a context, checked.

    Attributes:
      tripwires: what is looked for.
      sample_every: send every so many steps.
      extra: names of leaves that are sent besides.
      hooks: whether the info is read where kernels build it, or from what the loop returns.
      on_event: called with each event.
      on_row: called with each row.
      capacity: rows that are kept.
      threads: whose programs are seen.
    """

    tripwires: tuple[Tripwire, ...] = ()
    sample_every: int = 1
    extra: tuple[str, ...] = ()
    hooks: bool = True
    on_event: Any = None
    on_row: Any = None
    capacity: int | None = None
    threads: str = "own"


def options_of(
    name: str,
    given: Mapping[str, Any],
    defaults: Callable[[], Sequence[Tripwire]],
    without: Sequence[str] = ("hooks", "select"),
) -> Chosen:
    """The options of a context, checked.

    Args:
      name: of the context.
      given: the options as a user passes them.
      defaults: the tripwires of the context, where the user does not choose them.
      without: options that it does not have.

    Raises:
      TypeError: for an option that it does not have, or one of the wrong type.
      ValueError: for one that is too small, or not one of its choices.
    """
    known = [each for each in Options.__annotations__ if each not in without]
    unknown = [each for each in given if each not in known]
    if unknown:
        raise TypeError(f"{name} has no option {unknown[0]!r}; it has {', '.join(known)}.")
    own = dict(given)
    extra = names_of(own.pop("select", None))
    wires = chosen(own.pop("tripwires", True), defaults)
    chosen_ = Chosen(wires, extra=extra, **own)
    check_count("sample_every", chosen_.sample_every, 1, "every step is 1, every tenth is 10")
    for argument in ("on_event", "on_row"):
        check_callable(argument, getattr(chosen_, argument))
    if chosen_.threads not in ("own", "all"):
        raise ValueError(f"threads must be 'own' or 'all'; got {chosen_.threads!r}.")
    return chosen_


def names_of(select: Any) -> tuple[str, ...]:
    """Names of extra leaves, as a user wrote them.

    Raises:
      TypeError: if it is neither None, a name, a selector of this package, nor a list of those.
    """
    if select is None:
        return ()
    each = list(select) if isinstance(select, (list, tuple)) else [select]
    names = [one if isinstance(one, str) else getattr(one, "fields", ((None, None),))[0][1] for one in each]
    if not all(isinstance(name, str) and name for name in names):
        raise TypeError(
            f"select must be the name of a leaf such as 'wc_state.mean', a selector of jaxtap_blackjax, or a list of "
            f"those; got {select!r}."
        )
    return tuple(str(name) for name in names)


def opened(
    make: Callable[[Plan, Choices], Any],
    plan: Plan,
    own: Chosen,
    f: Callable[..., Any] | None,
) -> Any:
    """A context, or a function that is watched when it is called."""
    watch = make(plan, Choices(own.tripwires, own.on_event, own.on_row, own.capacity, own.threads))
    return watch if f is None else watch(f)
