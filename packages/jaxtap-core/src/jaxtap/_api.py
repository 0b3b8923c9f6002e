"""The two ways to hold a lens: over a block of code, and around a function."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal, overload

import jax
from jax.core import Tracer

from jaxtap import _active, _compiles
from jaxtap._capacity import CapacitySpec
from jaxtap._config import (
    BUFFER_BYTES,
    OPS,
    THREADS,
    Host,
    Marks,
    View,
    check_callable,
    check_count,
    check_flag,
    check_marks,
    check_ops,
    check_overflow,
    check_processes,
    selection,
)
from jaxtap._guard import warn
from jaxtap._intercept import hooks
from jaxtap._lanes import check_lanes
from jaxtap._lens import Lens, Opening, with_listener
from jaxtap._recorder import FlightRecorder
from jaxtap._router import settle
from jaxtap._signals import give_back, uninterrupted
from jaxtap._sinks import Sink, check_target
from jaxtap._taps import PrimitiveTap
from jaxtap._tripped import Tripped
from jaxtap._types import Alert, LanesSpec, MarksSpec, OnEvent, Overflow, SelectSpec, WhereSpec
from jaxtap._where import check_where


def view_of(
    *,
    select: SelectSpec,
    select_ys: SelectSpec,
    wants_carry: bool,
    wants_outputs: bool,
    ops: Sequence[str],
    sample_every: int,
    where: WhereSpec,
    max_depth: int | None,
    taps: tuple[PrimitiveTap, ...],
    marks: Marks,
    backward: bool,
    select_backward: SelectSpec,
    last: int | None,
    lanes: LanesSpec,
    internals: bool,
    shards: bool,
    buffer: int | None,
    buffer_bytes: int,
) -> View:
    return View(
        select=selection("select", select) if wants_carry else None,
        outputs=selection("select_ys", select_ys) if wants_outputs else None,
        ops=check_ops(ops),
        sample_every=check_count("sample_every", sample_every, 1, "every step is 1, every tenth is 10"),
        where=check_where(where),
        max_depth=None if max_depth is None else check_count("max_depth", max_depth, 0, "0 sees outermost loops only"),
        taps=tuple(tap.device for tap in taps),
        marks=marks,
        backward=selection("select_backward", select_backward) if backward else None,
        last=None if last is None else check_count("last", last, 1, "how many steps of each loop are kept"),
        lanes=check_lanes(lanes),
        internals=check_flag("internals", internals),
        shards=check_flag("shards", shards),
        buffer=None if buffer is None else check_count("buffer", buffer, 1, "1 sends each event at once"),
        buffer_bytes=check_count("buffer_bytes", buffer_bytes, 1, "bytes of the buffers of each outermost loop"),
    )


def wants_backward(backward: Any, select_backward: SelectSpec) -> bool:
    return check_flag("backward", backward) or select_backward is not None


def _only_tripwires(taps: tuple[PrimitiveTap, ...], *asked: Any) -> bool:
    """Whether a recording is of tripwires alone, of which nothing is heard while all is well."""
    return bool(taps) and all(tap.is_tripwire for tap in taps) and all(each is None for each in asked)


def taps_of(taps: Any) -> tuple[PrimitiveTap, ...]:
    if isinstance(taps, PrimitiveTap):
        taps = (taps,)
    for tap in taps:
        if not isinstance(tap, PrimitiveTap):
            remedy = f" For the primitive of that name: taps=[jaxtap.on({tap!r})]." if isinstance(tap, str) else ""
            raise TypeError(f"taps must hold what jaxtap.on, watch_nan, trip and print make; got {tap!r}.{remedy}")
    return tuple(taps)


def _host(processes: int | Sequence[int] | None, overflow: str, **callbacks: Any) -> Host:
    for name, value in callbacks.items():
        if name in ("on_step", "on_ys"):
            check_target(name, value)
        elif name in ("alert", "alert_ys"):
            check_callable(name, value)
    return Host(**callbacks, processes=check_processes(processes), overflow=check_overflow(overflow))


def verbose(
    f: Callable[..., Any],
    *,
    on_step: OnEvent | Sink | None = None,
    select: SelectSpec = None,
    alert: Alert | None = None,
    alert_once: bool = False,
    on_ys: OnEvent | Sink | None = None,
    select_ys: SelectSpec = None,
    alert_ys: Alert | None = None,
    alert_ys_once: bool = False,
    ops: Sequence[str] = OPS,
    sample_every: int = 1,
    where: WhereSpec = None,
    max_depth: int | None = None,
    taps: Sequence[PrimitiveTap] = (),
    marks: MarksSpec = None,
    backward: bool = False,
    select_backward: SelectSpec = None,
    last: int | None = None,
    lanes: LanesSpec = None,
    internals: bool = False,
    shards: bool = False,
    processes: int | Sequence[int] | None = None,
    buffer: int | None = None,
    buffer_bytes: int = BUFFER_BYTES,
    overflow: Overflow = "block",
) -> Callable[..., Any]:
    """A function that returns exactly what `f` returns, and tells what changes in the loops inside.

    It composes with `jit`, `vmap`, `grad`, `checkpoint` and the like, inside or outside of them.

    Args:
      f: any function that runs JAX programs.
      on_step: called on the host with each carry event, on a thread of jaxtap's own; or a `Sink`, which takes many
        events at once, such as a `JSONLWriter` or a `FlightRecorder`.
      select: what is sent of a loop's state: leaf names (`"step_size"`, or a list), or a traced function of
        the leaves (`Leaves`; a second parameter, or one named `path`, receives the address). None sends all.
      alert: called with each carry event before `on_step`; a true result prints one line to stderr, a
        string being its message.
      alert_once: print at most one such line for each address.
      on_ys: called with each event of what a scan step returns; or a `Sink`.
      select_ys: as `select`, for what a scan step returns.
      alert_ys: as `alert`, for what a scan step returns.
      alert_ys_once: as `alert_once`.
      ops: which loops: `"scan"`, `"while_loop"`, or both. A `fori_loop` is one or the other, as JAX makes it.
      sample_every: send steps 0, k, 2k, ... only; decided on the device.
      where: which loops send: those at addresses that a glob fits (`"scan[0]/while[*]"`; `*` stays within a part of an
        address, `**` does not), those whose body is a function of that name (`"one_step"`, or a glob), or those for
        whose address a predicate is true.
      max_depth: send nothing from loops with more than this many others around them.
      taps: what to see besides loops: a sequence of what `on`, `watch_nan`, `trip` and `print` make.
      marks: which values named by `jaxtap.mark` are sent: a name or glob, several, or a dictionary of names with
        what to send of each, as for `select`. None sends all, an empty list none.
      backward: send the gradient pass, too: for each scan whose carry is differentiated, the cotangent of the carry
        after each step, under the forward loop's address, kind `"backward"`, from the last step to the first. Of a
        gradient of a gradient, the first-order pass.
      select_backward: as `select`, for the cotangents; only leaves that have one are there. Implies `backward`.
      last: keep the newest this many sampled steps of each loop on the device, and send nothing until one of `taps`
        that is a tripwire fires in the loop, or the loop ends: then the steps that led up to it arrive. What a
        program kept that XLA aborts is lost. An inner loop ends once in each step of the loop around.
      lanes: which lanes of a vmap are sent: an index, a slice or a list of indices of the outermost mapped axis, or a
        tuple with one of these for each mapped axis, outermost first. The others do not leave the device. Loops outside
        of any vmap are sent as ever; an index that an axis does not have chooses nothing of it.
      internals: also see loops of JAX's own library, as in `jax.random.poisson` and `jax.scipy`. They are counted in
        addresses either way.
      shards: where XLA partitions a program over several devices, let each device send the shard that it has, as an
        event of its own with its `device`; nothing is gathered for it. Without, values are sent whole, once.
      processes: of a program that runs in several processes, those in which events are received: an index or several;
        None for all. In the others the program is the same, and what it sends is not looked at.
      buffer: events of a loop wait in buffers on the device, and many cross to the host at once. None adapts how many
        steps that are to the time that they take: the first event comes at once, and then about every 10 ms some do.
        With `n`, events cross every n steps of the loops, those within others counted; with 1, each at once, without a
        buffer. What tripwires send never waits, nor does what stands outside of any loop or on several devices.
      buffer_bytes: how much memory of the device the buffers of an outermost loop may take. A step that fills more than
        half of it crosses at once.
      overflow: what happens when user functions cannot keep up, and 65,536 events or 64 MiB wait for them: `"block"`
        lets the program wait, `"drop"` drops the oldest events that wait. `report()` says how long it has waited, and
        how many were dropped; a recorder has them all the same. If a program has waited for 5 s in which not one
        function returned, it goes on as with `"drop"`: a function that itself runs JAX may need the thread that waits.

    Raises:
      ValueError: on entering, for a value that is not allowed.
      TypeError: on entering, for an argument of the wrong type.
      SelectError: when the program is traced, if `select` cannot be applied to a loop.

    >>> import jax
    >>> def doubled(x):
    ...     return jax.lax.fori_loop(0, 3, lambda i, c: c * 2.0, x)
    >>> y = verbose(doubled, on_step=lambda event: print(event.step, event.value[1]))(1.0)
    0 2.0
    1 4.0
    2 8.0
    """
    taps = taps_of(taps)
    host = _host(
        processes,
        overflow,
        taps=tuple(tap.host for tap in taps),
        on_step=on_step,
        alert=alert,
        alert_once=alert_once,
        on_ys=on_ys,
        alert_ys=alert_ys,
        alert_ys_once=alert_ys_once,
    )
    view = view_of(
        select=select,
        select_ys=select_ys,
        wants_carry=on_step is not None or alert is not None,
        wants_outputs=any(x is not None for x in (on_ys, alert_ys)),
        ops=ops,
        sample_every=sample_every,
        where=where,
        max_depth=max_depth,
        taps=taps,
        marks=check_marks(marks) if on_step is not None else (),
        backward=wants_backward(backward, select_backward) and on_step is not None,
        select_backward=select_backward,
        last=last,
        lanes=lanes,
        internals=internals,
        shards=shards,
        buffer=buffer,
        buffer_bytes=buffer_bytes,
    )
    return wrapped(f, Lens(view, host, None))


def wrapped(f: Callable[..., Any], lens: Lens) -> Callable[..., Any]:
    """`f` under a lens that is opened for each call, and hears what is compiled of it for good."""
    check_callable("f", f)
    key = _active.Key(lens.view)
    key.lend(lens)
    lens.tapped, lens.left_out = key.tapped, key.left_out

    @functools.wraps(f)
    def g(*args: Any, **kwargs: Any) -> Any:
        opening = Opening(lens, key)
        try:
            opening.open()
            result = f(*args, **kwargs)
        except jax.errors.JaxRuntimeError as error:
            give_back(error)
            raise
        finally:
            opening.close()
        if any(isinstance(leaf, Tracer) for leaf in jax.tree_util.tree_leaves((args, kwargs, result))):
            # What is traced now may run when this function is gone.
            key.own(lens)
        else:
            settle()
            _say_what_is_off(lens)
        return result

    return g


def _say_what_is_off(lens: Lens) -> None:
    """One warning, the first time that something is off."""
    report = lens.report()
    if report.notes and not lens.warned:
        lens.warned = True
        first, *others = report.notes
        more = f" ({len(others)} more in report())" if others else ""
        warn(f"jaxtap: {first}{more}", stacklevel=3)


class Recording:
    """A lens over a block of code, from `with jaxtap.record(...) as rec:`."""

    _lens: Lens | None = None

    def __init__(
        self,
        view: View,
        host: Host,
        recorder: FlightRecorder,
        everywhere: bool,
        raises: bool = False,
        traces: bool = False,
    ) -> None:
        self._view, self._host, self._recorder, self._everywhere = view, host, recorder, everywhere
        self._raises, self._traces = raises, traces

    def __enter__(self) -> FlightRecorder:
        if self._lens is not None:
            raise RuntimeError("this lens is open already; call jaxtap.record(...) again for another.")
        try:
            with uninterrupted():
                self._open()
        except BaseException:
            self._close()
            raise
        return self._recorder

    def _open(self) -> None:
        lens = Lens(self._view, self._host, self._recorder)
        if self._traces:
            with_listener(lens, self._recorder, self._everywhere)
        self._key, self._slot = _active.take_key(self._view)
        lens.tapped, lens.left_out = self._key.tapped, self._key.left_out
        self._opening, self._lens = Opening(lens, self._key, self._everywhere), lens
        self._key.route(lens)
        self._opening.open()

    def __del__(self) -> None:
        # Ctrl-C may come as the block is entered or left, where no code of this object's has run yet.
        if self._lens is not None:
            self._close()

    def _close(self) -> None:
        """Close what is open, and hear no more."""
        with uninterrupted():
            if self._lens is not None:
                self._lens = None
                self._opening.close()
                self._key.route(None)
                _active.give_key_back(self._view, self._slot)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        lens = self._lens
        if lens is None:
            return
        try:
            self._opening.close()
            # Whoever pressed Ctrl-C does not want to wait for a program that may run on for hours.
            if not isinstance(error, KeyboardInterrupt):
                settle()
        except Exception:
            # A program that failed has told so where its result was asked for.
            if error is None:
                raise
        finally:
            self._close()
        if error is not None:
            give_back(error)
            return
        _say_what_is_off(lens)
        if self._raises and lens.trips:
            raise Tripped(lens.trips)


@overload
def record(
    f: None = None,
    *,
    select: SelectSpec = None,
    on_ys: OnEvent | Sink | None = None,
    select_ys: SelectSpec = None,
    alert_ys: Alert | None = None,
    alert_ys_once: bool = False,
    ops: Sequence[str] = OPS,
    sample_every: int = 1,
    where: WhereSpec = None,
    max_depth: int | None = None,
    taps: Sequence[PrimitiveTap] = (),
    marks: MarksSpec = None,
    backward: bool = False,
    select_backward: SelectSpec = None,
    last: int | None = None,
    lanes: LanesSpec = None,
    internals: bool = False,
    shards: bool = False,
    processes: int | Sequence[int] | None = None,
    buffer: int | None = None,
    buffer_bytes: int = BUFFER_BYTES,
    overflow: Overflow = "block",
    on_step: OnEvent | Sink | None = None,
    alert: Alert | None = None,
    alert_once: bool = False,
    threads: Literal["own", "all"] = "own",
    capacity: CapacitySpec = None,
    raise_on_exit: bool = False,
    trace: bool = False,
) -> Recording: ...
@overload
def record(
    f: Callable[..., Any],
    *,
    select: SelectSpec = None,
    on_ys: OnEvent | Sink | None = None,
    select_ys: SelectSpec = None,
    alert_ys: Alert | None = None,
    alert_ys_once: bool = False,
    ops: Sequence[str] = OPS,
    sample_every: int = 1,
    where: WhereSpec = None,
    max_depth: int | None = None,
    taps: Sequence[PrimitiveTap] = (),
    marks: MarksSpec = None,
    backward: bool = False,
    select_backward: SelectSpec = None,
    last: int | None = None,
    lanes: LanesSpec = None,
    internals: bool = False,
    shards: bool = False,
    processes: int | Sequence[int] | None = None,
    buffer: int | None = None,
    buffer_bytes: int = BUFFER_BYTES,
    overflow: Overflow = "block",
    on_step: OnEvent | Sink | None = None,
    alert: Alert | None = None,
    alert_once: bool = False,
    capacity: CapacitySpec = None,
    trace: bool = False,
) -> tuple[Callable[..., Any], FlightRecorder]: ...
def record(
    f: Callable[..., Any] | None = None,
    *,
    select: SelectSpec = None,
    on_ys: OnEvent | Sink | None = None,
    select_ys: SelectSpec = None,
    alert_ys: Alert | None = None,
    alert_ys_once: bool = False,
    ops: Sequence[str] = OPS,
    sample_every: int = 1,
    where: WhereSpec = None,
    max_depth: int | None = None,
    taps: Sequence[PrimitiveTap] = (),
    marks: MarksSpec = None,
    backward: bool = False,
    select_backward: SelectSpec = None,
    last: int | None = None,
    lanes: LanesSpec = None,
    internals: bool = False,
    shards: bool = False,
    processes: int | Sequence[int] | None = None,
    buffer: int | None = None,
    buffer_bytes: int = BUFFER_BYTES,
    overflow: Overflow = "block",
    on_step: OnEvent | Sink | None = None,
    alert: Alert | None = None,
    alert_once: bool = False,
    threads: str = "own",
    capacity: CapacitySpec = None,
    raise_on_exit: bool = False,
    trace: bool = False,
) -> Recording | tuple[Callable[..., Any], FlightRecorder]:
    """Record what changes in loops: over a block of unmodified code, or around a function.

    `with record(...) as rec:` sees every loop that runs in the block, however deep in whatever library, whether
    or not it was compiled before. `g, rec = record(f, ...)` gives a function like `f` and what fills as it
    runs. Leaving the block (or returning from `g`) waits for the events still under way.

    Args:
      f: a function to wrap; None for the block form.
      threads: `"own"` sees the thread that opened the lens, `"all"` every thread of the process.
      capacity: how much is kept, the newest: a number of events, an amount of memory such as `"4GiB"` or `"500 MB"`, or
        both as a tuple. None keeps any number of events. Without an amount of memory, it is 1 GiB.
      raise_on_exit: in the block form, raise `Tripped` on leaving the block if a tripwire has fired. A tripwire
        itself never ends a program: that would change its result.
      trace: also record what happens before programs run: an event of kind `"trace"` for each loop when it is traced,
        with its address, source and the type of each leaf, and one of kind `"compile"` for each function that is
        compiled, as `jaxtap.compiles` logs it. Then `rec.timeline()` tells trace, lowering, compile and execution
        apart. What is sent while a program runs does not change.

    All other arguments are those of `verbose`. Outputs of scan steps are recorded if any of `on_ys`,
    `select_ys` and `alert_ys` is given. Carries are recorded unless all `taps` are tripwires (`watch_nan`, `trip`)
    and none of `select`, `on_step` and `alert` is given: then nothing is, until one fires.

    Raises:
      ValueError: on entering, for a value that is not allowed.
      TypeError: on entering, for an argument of the wrong type.
      SelectError: when the program is traced, if `select` cannot be applied to a loop.
      Tripped: on leaving the block, if `raise_on_exit` is set and a tripwire has fired.

    >>> import jax, jax.numpy as jnp
    >>> def body(total, x):
    ...     return total + x, total
    >>> with record(select="total") as rec:
    ...     result = jax.lax.scan(body, 0.0, jnp.arange(3.0))
    >>> [(event.path, event.step, float(event.value)) for event in rec.events]
    [('scan[0]', 0, 0.0), ('scan[0]', 1, 1.0), ('scan[0]', 2, 3.0)]
    """
    if threads not in THREADS:
        raise ValueError(f"threads must be {' or '.join(map(repr, THREADS))}; got {threads!r}.")
    if f is not None and threads == "all":
        raise ValueError("threads='all' is for the block form: a wrapped function is seen where it is called.")
    if f is not None and raise_on_exit:
        raise ValueError("raise_on_exit is for the block form: with jaxtap.record(..., raise_on_exit=True):")
    recorder = FlightRecorder(capacity)
    taps = taps_of(taps)
    host = _host(
        processes,
        overflow,
        taps=tuple(tap.host for tap in taps),
        on_step=on_step,
        alert=alert,
        alert_once=alert_once,
        on_ys=on_ys,
        alert_ys=alert_ys,
        alert_ys_once=alert_ys_once,
    )
    view = view_of(
        select=select,
        select_ys=select_ys,
        wants_carry=not _only_tripwires(taps, select, on_step, alert),
        wants_outputs=any(x is not None for x in (on_ys, select_ys, alert_ys)),
        ops=ops,
        sample_every=sample_every,
        where=where,
        max_depth=max_depth,
        taps=taps,
        marks=check_marks(marks),
        backward=wants_backward(backward, select_backward),
        select_backward=select_backward,
        last=last,
        lanes=lanes,
        internals=internals,
        shards=shards,
        buffer=buffer,
        buffer_bytes=buffer_bytes,
    )
    if f is None:
        return Recording(view, host, recorder, threads == "all", raise_on_exit, trace)
    lens = Lens(view, host, recorder)
    return wrapped(f, with_listener(lens, recorder) if trace else lens), recorder


def emergency_restore() -> None:
    """Close every lens and log, in whatever state it is, as after a crash in an interactive session.

    >>> import jax
    >>> lens = record()
    >>> rec = lens.__enter__()  # and never left
    >>> emergency_restore()
    >>> y = jax.lax.fori_loop(0, 3, lambda i, x: x + 1.0, 0.0)
    >>> len(rec.events)
    0
    """
    _compiles.forget()
    hooks.release(all_of_them=True)
    _active.forget()


# jaxtap replaces no function of JAX, so that the original is the present one.
original_scan = jax.lax.scan
