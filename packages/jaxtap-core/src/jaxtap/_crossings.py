"""What one loop sends to the host, for every lens that sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxtap._active import Key
from jaxtap._announce import tell, wires
from jaxtap._around import Around
from jaxtap._emit import Drift, Entry, emit_p
from jaxtap._hunt import Hunt, hunters
from jaxtap._hunt import watch as hunt_for
from jaxtap._mark import is_output, own_marks
from jaxtap._payload import Emitter, Read, emitters, lanes_of, payload


class Crossings:
    """What one loop sends, for every lens that sees it."""

    def __init__(self, marks: Sequence[Any], around: Around) -> None:
        self.around = around
        self.marks = marks
        self.emitters = [] if around.hunt else emitters(marks)
        self._wires = [] if around.hunt else [(mark, wire) for mark in marks for wire in wires(mark.params)]
        # Inner loops are looked at when the outermost one has gone wrong, or where they are evaluated apart anyway.
        looking = bool(around.hunt) or around.twin or not around.steps
        self._hunters = hunters(marks) if looking else ()
        self.loop = object()
        # Of each emitter's payloads, how many are the same for all lanes; known once one has been traced.
        self._shared: dict[Key, int] = {}

    def _send(self, emitter: Emitter, count: Any, mask: Any, events: Any, read: Read | None) -> None:
        """One crossing: the number of steps done, negative if there are no more, and what is read of the last."""
        arrays, parts = payload(emitter, read) if read is not None else ([], ())
        if read is not None:
            self._shared[emitter.key] = sum(not part.lanes for part in parts) if emitter.lanes else 0
        shared = self._shared.get(emitter.key, 0)
        entry = Entry(
            key=emitter.key,
            path=emitter.path,
            loop=self.loop,
            site=emitter.site,
            sample_every=emitter.view.sample_every,
            num_outer=len(self.around.steps),
            masked=mask is not None,
            parts=parts,
            kinds=len(emitter.marks) - shared,
            shared=shared,
            lanes=emitter.lanes,
        )
        head = [count, *self.around.steps, *([] if mask is None else [mask, events])]
        emit_p.bind(*map(jnp.asarray, head), *arrays, entry=entry)

    def step(self, emitter: Emitter, i: Any, done: Any, last: Any, mask: Any, events: Any, read: Read) -> None:
        """After step `i`: send it if it is sampled and some lane has run it; say if it was the last.

        Args:
          emitter: the lens.
          i: the step.
          done: `i + 1`.
          last: whether it was the last; the host knows by itself where the trip count is known.
          mask: which lanes have run it, or None for all.
          events: under a mask, how many events each payload has sent so far.
          read: reads the leaves of a mark.
        """
        count = done if emitter.site.total is not None else jnp.where(last, -done, done)
        wanted: Any = True if emitter.view.sample_every == 1 else i % emitter.view.sample_every == 0
        if mask is not None:
            wanted = wanted & mask.any()
        if wanted is True:
            self._send(emitter, count, mask, events, read)
            return

        def close() -> None:
            lax.cond(last, lambda: self._send(emitter, count, mask, events, None), lambda: None)

        lax.cond(wanted, lambda: self._send(emitter, count, mask, events, read), close)

    def watch(
        self,
        i: Any,
        total: int | None,
        mask: Callable[[tuple[int, ...]], Any],
        before: Read,
        after: Read,
        again: Callable[[Around], None],
    ) -> None:
        """After step `i`: let the tripwires on the state of the loop look at it.

        Args:
          i: the step.
          total: trip count of the loop, or None.
          mask: which lanes have run it, over the lanes of a mark.
          before: reads the carry as it was.
          after: reads the carry and the outputs as they are.
          again: evaluates the step once more.
        """
        around = self.around.inside(i, total)
        for mark, wire in self._wires:
            lanes = lanes_of(mark.params["layers"])
            tell(wire, mark.params, after(mark), around, lanes, mask(lanes))
        if self._hunters:
            hunt = Hunt(self._hunters, self.marks[0].params["path"])
            old = lambda m: None if is_output(m) else before(m)  # noqa: E731
            hunt_for(hunt, self.marks, around, mask, old, after, again)

    @property
    def watched(self) -> list[Any]:
        """The marks whose values are read after a step."""
        own = [mark for emitter in self.emitters for mark in emitter.marks]
        return [*own, *(mark for mark, _ in self._wires), *(self.marks if self._hunters else ())]

    def none(self, count: Any, masks: Callable[[Emitter], Any]) -> None:
        """After a loop that made no step: say so."""
        for emitter in self.emitters:
            mask = masks(emitter)
            send = lambda e=emitter, m=mask: self._send(e, jnp.int32(0), m, jnp.int32(0), None)  # noqa: E731
            if isinstance(count, int):
                send()
            else:
                lax.cond(count == 0, send, lambda: None)


def say_if_different(params: dict[str, Any], results: Sequence[Any], copied: Sequence[Any]) -> None:
    """Tell the host if a copy that was made for its events has not come to the loop's own result."""
    marks = own_marks(params["jaxpr"] if "jaxpr" in params else params["body_jaxpr"])
    _say(emitters(marks), False, results, copied)


def say_if_step_differs(body: Any, results: Sequence[Any], copied: Sequence[Any]) -> None:
    """The same of a copy of one step, in which inner loops are seen."""
    _say(emitters(own_marks(body), silent=True), True, results, copied)


def _say(told: Sequence[Emitter], inside: bool, results: Sequence[Any], copied: Sequence[Any]) -> None:
    if not told:
        return
    different = jnp.any(jnp.stack([_differ(a, b) for a, b in zip(results, copied, strict=True)] or [jnp.bool_(False)]))
    for emitter in told:
        drift = Drift(emitter.key, emitter.path, inside)
        lax.cond(different, lambda drift=drift: emit_p.bind(entry=drift), lambda: [])


def _differ(a: Any, b: Any) -> Any:
    if jnp.issubdtype(jnp.result_type(a), jax.dtypes.prng_key):
        a, b = jax.random.key_data(a), jax.random.key_data(b)
    return jnp.any((a != b) & ((a == a) | (b == b)))
