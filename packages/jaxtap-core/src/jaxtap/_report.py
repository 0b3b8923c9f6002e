"""Accounting: what a lens saw, what it should have received, what it did receive, and why not more."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class LoopReport:
    """The account of one address.

    Attributes:
      path: address of the loop.
      source: where its body was written.
      op: `"scan"` or `"while_loop"`.
      internal: whether it is a loop of JAX's own library, seen with `internals=True`.
      selected: whether the lens's filters let it through; without, nothing is sent and nothing is counted.
      executions: how often it began, as far as the lens was told.
      unfinished: how many of those have not ended (or had not when the lens was closed).
      expected: events that its finished executions should have sent, given `sample_every`.
      delivered: events that arrived from finished executions.
      partial: events that arrived from unfinished executions.
      sampled_out: steps of finished executions, counted as events, that `sample_every` left out.

    >>> import jax
    >>> with record(sample_every=2) as rec:
    ...     y = jax.lax.fori_loop(0, 5, lambda i, x: x + 1.0, 0.0)
    >>> (loop,) = rec.report().loops
    >>> loop.executions, loop.expected, loop.delivered, loop.sampled_out
    (1, 3, 3, 2)
    """

    path: str
    source: str
    op: str
    internal: bool = False
    selected: bool = True
    executions: int = 0
    unfinished: int = 0
    expected: int = 0
    delivered: int = 0
    partial: int = 0
    sampled_out: int = 0

    @property
    def missing(self) -> int:
        """Events expected but not delivered."""
        return self.expected - self.delivered


@dataclasses.dataclass(frozen=True)
class PointReport:
    """The account of one equation or marked value.

    Attributes:
      path: its address.
      source: where it was written.
      op: name of the primitive, or the name that code has given to the value.
      kind: `"primitive"` or `"mark"`.
      events: events that have arrived. How many were due only the program knows: a branch may not be taken, and a
        tripwire is silent while all is well.

    >>> import jax.numpy as jnp
    >>> with record(taps=[on("sin")]) as rec:
    ...     y = jnp.sin(1.0)
    >>> [(point.path, point.op, point.events) for point in rec.report().points]
    [('sin[0]', 'sin', 1)]
    """

    path: str
    source: str
    op: str
    kind: str
    events: int = 0


@dataclasses.dataclass(frozen=True)
class Report:
    """The account of one recording.

    Attributes:
      loops: one account for each address, in the order in which they were met.
      points: one account for each tapped equation and marked value.
      dropped: events that a bounded recorder has dropped.
      failures: how often each user function, sink or selector has raised.
      unknown: primitives whose jaxprs were passed through without being entered.
      notes: what else is off, in plain sentences; empty when nothing is.
      untold: events with which user functions were not called, since they could not keep up with the program.
      waited_s: how long the program has waited for user functions to catch up, in seconds.
      attached: False for a recorder that no lens fills, which has nothing to account for.

    >>> import jax
    >>> with record() as rec:
    ...     y = jax.lax.fori_loop(0, 5, lambda i, x: x + 1.0, 0.0)
    >>> report = rec.report()
    >>> report.ok, report.expected, report.delivered, report.dropped
    (True, 5, 5, 0)
    """

    loops: tuple[LoopReport, ...] = ()
    points: tuple[PointReport, ...] = ()
    dropped: int = 0
    failures: dict[str, int] = dataclasses.field(default_factory=dict[str, int])
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    untold: int = 0
    waited_s: float = 0.0
    attached: bool = True

    @property
    def expected(self) -> int:
        """Events that should have arrived."""
        return sum(loop.expected for loop in self.loops) + sum(point.events for point in self.points)

    @property
    def delivered(self) -> int:
        """Events that have arrived."""
        return sum(loop.delivered + loop.partial for loop in self.loops) + sum(point.events for point in self.points)

    @property
    def sampled_out(self) -> int:
        """Steps left out by `sample_every`, counted as events."""
        return sum(loop.sampled_out for loop in self.loops)

    @property
    def ok(self) -> bool:
        """Whether nothing is off."""
        return self.attached and not (self.notes or self.failures or self.untold)

    def __repr__(self) -> str:
        if not self.attached:
            return "no lens fills this recorder, so there is nothing to account for"
        lines = [
            f"{len(self.loops)} loops, {self.delivered} events delivered of {self.expected} expected, "
            f"{self.sampled_out} sampled out, {self.dropped} dropped, {sum(self.failures.values())} callbacks failed"
        ]
        width = max((len(seen.path) for seen in (*self.loops, *self.points)), default=0)
        lines += [f"  {loop.path:<{width}}  {_line(loop)}  {loop.source}" for loop in self.loops]
        lines += [f"  {point.path:<{width}}  {point.events} events  {point.source}" for point in self.points]
        lines += [f"  {what} raised {count} times" for what, count in self.failures.items()]
        if self.untold or self.waited_s:
            lines.append(
                f"  user functions missed {self.untold} events, and the program waited {self.waited_s:.1f} s for them"
            )
        lines += [f"  not entered: {name}" for name in self.unknown]
        lines += [f"  ! {note}" for note in self.notes]
        return "\n".join(lines)


def _line(loop: LoopReport) -> str:
    if not loop.selected:
        return "filtered out, of JAX's own" if loop.internal else "filtered out"
    text = f"{loop.executions} x, {loop.delivered}/{loop.expected} events"
    if loop.partial or loop.unfinished:
        text += f", {loop.unfinished} unfinished with {loop.partial}"
    return text
