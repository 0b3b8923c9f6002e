"""What a lens looks at. The device-side half is one frozen value: it keys JAX's caches."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jaxtap._lanes import Lanes
from jaxtap._types import Alert, OnEvent, Select, SelectSpec

if TYPE_CHECKING:
    from jaxtap._sinks import Sink

OPS = ("scan", "while_loop")
THREADS = ("own", "all")
BUFFER_BYTES = 1 << 20
OVERFLOWS = ("block", "drop")


@dataclasses.dataclass(frozen=True)
class ByIdentity:
    """Makes any object usable in a cache key: two are equal only if they hold the same object."""

    value: Any

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByIdentity) and other.value is self.value


@dataclasses.dataclass(frozen=True)
class Selection:
    """Which leaves are sent: all of them, some by name, or what a traced function makes of them.

    Attributes:
      names: leaf names to pick by the end of their dotted name, or None.
      single: whether one match gives the bare value instead of a dictionary.
      function: a traced function of the leaves (of those picked by name, if any are), or None.
      path_is: how that function takes the address: `"keyword"`, `"positional"`, or `""` if it does not.
      finder: finds the leaves instead of names: from the names of all leaves and the structure of the state (None where
        it is not known), the positions of those to pick.
      gate: of a marked value: a traced predicate of the leaves; nothing is sent where it is false.
      between: of a marked value: likewise; where it is true, what `sample_every` leaves out is sent all the same.
    """

    names: tuple[str, ...] | None = None
    single: bool = False
    function: ByIdentity | None = None
    path_is: str = ""
    finder: ByIdentity | None = None
    gate: ByIdentity | None = None
    between: ByIdentity | None = None

    @property
    def chooses(self) -> bool:
        """Whether it takes less than all leaves, or makes something of them."""
        return self.names is not None or self.function is not None


ALL_LEAVES = Selection()


@dataclasses.dataclass(frozen=True)
class Tap:
    """The device-side half of a tap.

    Attributes:
      kind: what it looks at: `"primitive"`, the `"carry"` or `"output"` of loops, or the `"state"` of loops, both, for
        values that are not finite, or the `"cotangent"` of a loop's carry, likewise.
      primitives: names of primitives, or globs.
      selection: what is sent of the outputs.
      output: index of the one output looked at, or None for all.
      where: which addresses, as `_where.check_where` gives it.
      trips_on: a traced predicate of the outputs, without which nothing is sent.
      inner: of one that looks at the state of loops, whether it looks at each step of inner ones.
    """

    kind: str = "primitive"
    primitives: tuple[str, ...] = ()
    selection: Selection = ALL_LEAVES
    output: int | None = None
    where: ByIdentity | str | None = None
    trips_on: ByIdentity | None = None
    inner: bool = False


# Names of marked values, or globs, with what is sent of those.
Marks = tuple[tuple[tuple[str, ...], Selection], ...]


@dataclasses.dataclass(frozen=True)
class View:
    """The device-side configuration of a lens: all that changes what is compiled.

    Attributes:
      select: what is sent of the carry, or None where no one asked for it.
      outputs: what is sent of a scan's `ys`, or None where no one asked for them.
      ops: loop operators that are tapped.
      sample_every: send steps 0, k, 2k, ... only.
      where: which addresses, as `_where.check_where` gives it.
      max_depth: deepest address sent; an outermost loop has depth 0.
      taps: which equations are seen.
      marks: which marked values are seen.
      backward: what is sent of the cotangents of carries and marked values, or None where no one asked for them.
      last: how many steps of each loop are kept on the device until something happens; None sends each.
      internals: whether loops of JAX's own library are seen.
      lanes: which lanes are sent, as `_lanes.check_lanes` gives it.
      hooks: what is hooked for it in a library, and how: a name, and anything hashable.
      shards: each device sends the shard that it has; without, values are sent whole.
      buffer: after how many trips of loops what they send crosses to the host; None adapts to the time that they take.
      buffer_bytes: how much the buffers of an outermost loop may take.
    """

    select: Selection | None = ALL_LEAVES
    outputs: Selection | None = None
    ops: tuple[str, ...] = OPS
    sample_every: int = 1
    where: ByIdentity | str | None = None
    max_depth: int | None = None
    taps: tuple[Tap, ...] = ()
    marks: Marks = ()
    backward: Selection | None = None
    last: int | None = None
    internals: bool = False
    lanes: Lanes = None
    hooks: tuple[tuple[str, Any], ...] = ()
    shards: bool = False
    buffer: int | None = None
    buffer_bytes: int = BUFFER_BYTES

    @property
    def watches_cotangents(self) -> bool:
        """Whether a tap looks for cotangents that are not finite."""
        return any(tap.kind == "cotangent" for tap in self.taps)

    @property
    def wants_outputs(self) -> bool:
        """Whether anything looks at what scan steps return."""
        return self.outputs is not None or any(tap.kind in ("output", "state") for tap in self.taps)

    @property
    def hunts(self) -> bool:
        """Whether a tap looks for the equation that makes the first value that is not finite."""
        return any(tap.kind == "state" for tap in self.taps)

    @property
    def only_loops(self) -> bool:
        """Whether no tap looks at single equations."""
        return all(tap.kind != "primitive" for tap in self.taps)


@dataclasses.dataclass(frozen=True)
class HostTap:
    """The host-side half of a tap on single equations.

    Attributes:
      alert: called with what arrived; a true result prints a line.
      label: the text of that line; None for the primitive's name.
      once: print at most one line.
      prints: whether the line shows the value instead.
      trips: whether it is a tripwire.
    """

    alert: Callable[[Any], object] | None = None
    label: str | None = None
    once: bool = False
    prints: bool = False
    trips: bool = False


@dataclasses.dataclass(frozen=True)
class Host:
    """The host-side configuration of a lens: who is called with what arrives.

    Attributes:
      on_step: called with each event, or written to; so is `on_ys`, with those of kind `"output"` instead.
      alert: called before that; a true result prints a line. So is `alert_ys`.
      alert_once: print at most one such line for each address. So is `alert_ys_once`.
      taps: the host-side halves of taps.
      processes: in which processes events are received; None for all.
      overflow: what happens when those that are called cannot keep up, one of `OVERFLOWS`.
    """

    on_step: OnEvent | Sink | None = None
    alert: Alert | None = None
    alert_once: bool = False
    on_ys: OnEvent | Sink | None = None
    alert_ys: Alert | None = None
    alert_ys_once: bool = False
    taps: tuple[HostTap, ...] = ()
    processes: tuple[int, ...] | None = None
    overflow: str = "block"

    @property
    def calls_user(self) -> bool:
        """Whether any user function runs for an event."""
        return any((self.on_step, self.alert, self.on_ys, self.alert_ys, self.taps))


def takes_path(function: Select) -> str:
    """How a selector takes the address: by a parameter named `path`, as a second positional one, or not at all."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return ""
    if "path" in parameters and parameters["path"].kind is not inspect.Parameter.POSITIONAL_ONLY:
        return "keyword"
    required = [
        p
        for p in parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]
    return "positional" if len(required) >= 2 else ""


def selection(argument: str, spec: SelectSpec) -> Selection:
    """Check a `select` as the user wrote it.

    Raises:
      TypeError: if it is neither None, a name, a list of names nor callable.
      ValueError: if a name or the list of names is empty.
    """
    if spec is None:
        return ALL_LEAVES
    if isinstance(spec, str):
        return Selection(names=_names(argument, [spec]), single=True)
    if isinstance(spec, (list, tuple)):
        return Selection(names=_names(argument, spec))
    if callable(spec):
        names, finder = getattr(spec, "leaf_names", ()), getattr(spec, "positions", None)
        if names and finder is not None:
            return Selection(names=_names(argument, names), function=ByIdentity(spec), finder=ByIdentity(finder))
        if names:
            return Selection(names=_names(argument, names), function=ByIdentity(spec))
        return Selection(function=ByIdentity(spec), path_is=takes_path(spec))
    raise TypeError(
        f"{argument} must be a leaf name, a list of leaf names, a function of the leaves, or None; "
        f"got {type(spec).__name__}. jaxtap.loops(f, *args) lists the names."
    )


def _names(argument: str, names: Sequence[Any]) -> tuple[str, ...]:
    if not names or not all(isinstance(name, str) and name.strip(". ") for name in names):
        raise ValueError(
            f"{argument} must name at least one leaf, each name a non-empty string such as 'step_size'; got "
            f"{list(names)!r}. jaxtap.loops(f, *args) lists the names."
        )
    return tuple(names)


def check_ops(ops: Sequence[str]) -> tuple[str, ...]:
    """The operators to tap, checked.

    Raises:
      ValueError: if one is not a loop operator.
    """
    if isinstance(ops, str):
        ops = (ops,)
    unknown = [op for op in ops if op not in OPS]
    if unknown:
        raise ValueError(f"ops may hold {' and '.join(map(repr, OPS))}; got {', '.join(map(repr, unknown))}.")
    return tuple(op for op in OPS if op in ops)


def check_marks(marks: Any) -> Marks:
    """Which marked values are sent, checked.

    Raises:
      TypeError: if it is neither a name, several, a dictionary of names, nor None.
    """
    if marks is None:
        return ((("*",), ALL_LEAVES),)
    if isinstance(marks, str):
        marks = (marks,)
    if not isinstance(marks, (list, tuple, set, frozenset, Mapping)) or not all(isinstance(n, str) for n in marks):
        raise TypeError(
            f"marks must be a name or glob, several, a dictionary of names with what to send of each, or None for all; "
            f"got {marks!r}."
        )
    if isinstance(marks, Mapping):
        return tuple(((name,), selection(f"marks[{name!r}]", spec)) for name, spec in marks.items())
    return ((tuple(marks), ALL_LEAVES),) if marks else ()


def check_count(argument: str, value: Any, least: int, meaning: str) -> int:
    """An integer argument with a lower bound, checked.

    Raises:
      ValueError: if it is not an integer or too small.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < least:
        raise ValueError(f"{argument} must be an integer of at least {least} ({meaning}); got {value!r}.")
    return value.__index__()


def check_processes(processes: int | Sequence[int] | None) -> tuple[int, ...] | None:
    """In which processes events are received, checked.

    Raises:
      ValueError: if it is neither an index of a process, several of them, nor None.
    """
    if processes is None:
        return None
    several = processes if isinstance(processes, (list, tuple, range, set, frozenset)) else (processes,)
    meaning = "an index of a process, or a sequence of them: processes=[0]"
    return tuple(check_count("processes", process, 0, meaning) for process in several)


def check_overflow(overflow: Any) -> str:
    """What happens when user functions cannot keep up, checked.

    Raises:
      ValueError: if it is none of the choices.
    """
    if overflow not in OVERFLOWS:
        raise ValueError(f"overflow must be {' or '.join(map(repr, OVERFLOWS))}; got {overflow!r}.")
    return overflow


def check_flag(argument: str, value: Any) -> bool:
    """A boolean argument, checked.

    Raises:
      TypeError: if it is neither True nor False.
    """
    if not isinstance(value, bool):
        raise TypeError(f"{argument} must be True or False; got {value!r}.")
    return value


def check_callable(argument: str, value: Callable[..., Any] | None) -> Any:
    """An optional function argument, checked.

    Raises:
      TypeError: if it is neither None nor callable.
    """
    if value is not None and not callable(value):
        raise TypeError(f"{argument} must be a function or None; got {type(value).__name__}.")
    return value
