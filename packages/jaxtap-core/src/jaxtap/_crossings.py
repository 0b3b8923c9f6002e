"""What one loop sends to the host, for every lens that sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxtap._active import Key
from jaxtap._announce import tell, wires
from jaxtap._around import Around
from jaxtap._emit import Entry, RingEntry, emit_p
from jaxtap._hunt import Hunt, hunters
from jaxtap._hunt import watch as hunt_for
from jaxtap._mark import is_output
from jaxtap._payload import Emitter, Read, emitters, lanes_of, payload
from jaxtap._rings import Ring, put, start


class Crossings:
    """What one loop sends, for every lens that sees it."""

    def __init__(self, marks: Sequence[Any], around: Around) -> None:
        self.around = around
        self.marks = marks
        found = [] if around.hunt else emitters(marks)
        self.emitters = [emitter for emitter in found if emitter.view.last is None]
        self.keepers = [emitter for emitter in found if emitter.view.last is not None]
        self._wires = [] if around.hunt else [(mark, wire) for mark in marks for wire in wires(mark.params)]
        # Inner loops are looked at when the outermost one has gone wrong, or where they are evaluated apart anyway.
        looking = bool(around.hunt) or around.twin or not around.steps
        self._hunters = hunters(marks) if looking else ()
        self.loop = object()
        # Of each emitter's payloads, how many are the same for all lanes; known once one has been traced.
        self._shared: dict[Key, int] = {}

    def _send(
        self, emitter: Emitter, count: Any, mask: Any, events: Any, read: Read | None, ring: Ring | None = None
    ) -> None:
        """One crossing: the number of steps done, negative if there are no more, and what is read of the last."""
        arrays, parts = payload(emitter, read) if read is not None else ([], ())
        if read is not None:
            self._shared[emitter.key] = sum(not part.lanes for part in parts) if emitter.lanes else 0
        shared = self._shared.get(emitter.key, 0)
        if ring is not None:
            mask, arrays = (None, ring) if mask is None else (ring[0], ring[1:])
        entry = (Entry if emitter.view.last is None else RingEntry)(
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
            lanes=emitter.sent_lanes,
            speaker=self.around.speaker,
        )
        head = [count, *self.around.steps, *([] if mask is None else [mask, events])]
        emit_p.bind(*map(jnp.asarray, head), *arrays, entry=entry)

    def is_local(self, emitter: Emitter) -> bool:
        """Whether a device must not ask others, so that it knows of no lanes but its own."""
        return self.around.partitioned and emitter.view.shards

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
        if mask is not None and not self.is_local(emitter):
            wanted = wanted & mask.any()
        if wanted is True:
            self._send(emitter, count, mask, events, read)
            return

        def close() -> None:
            lax.cond(last, lambda: self._send(emitter, count, mask, events, None), lambda: None)

        lax.cond(wanted, lambda: self._send(emitter, count, mask, events, read), close)

    def start(self, masked: Callable[[Emitter], bool], read: Read) -> list[Ring]:
        """Empty rings for the lenses that keep the newest steps on the device."""
        return [start(emitter, read, masked(emitter)) for emitter in self.keepers]

    def keep(
        self, rings: list[Ring], i: Any, done: Any, last: Any, masks: Callable[[Emitter], Any], read: Read, fired: Any
    ) -> list[Ring]:
        """After step `i`: keep it, and send what is kept if a tripwire of the lens fired, or if it was the last.

        Args:
          rings: what is kept so far.
          i: the step.
          done: `i + 1`.
          last: whether it was the last.
          masks: which lanes have run it, or None for all.
          read: reads the leaves of a mark.
          fired: for each lens, whether one of its tripwires fired.
        """
        new: list[Ring] = []
        for emitter, ring in zip(self.keepers, rings, strict=True):
            mask = masks(emitter)
            ring = put(ring, emitter, i, mask, read)
            count = done if emitter.site.total is not None else jnp.where(last, -done, done)

            def send(emitter: Emitter = emitter, ring: Ring = ring, mask: Any = mask, count: Any = count) -> None:
                self._send(emitter, count, mask, jnp.int32(0), read, ring)

            lax.cond(last | fired.get(emitter.key, False), send, lambda: None)
            new.append(ring)
        return new

    def watch(
        self,
        i: Any,
        total: int | None,
        mask: Callable[[tuple[int, ...]], Any],
        before: Read,
        after: Read,
        again: Callable[[Around], Any],
    ) -> dict[Key, Any]:
        """After step `i`: let the tripwires on the state of the loop look at it.

        Args:
          i: the step.
          total: trip count of the loop, or None.
          mask: which lanes have run it, over the lanes of a mark.
          before: reads the carry as it was.
          after: reads the carry and the outputs as they are.
          again: evaluates the step once more.

        Returns:
          For each lens, whether one fired.
        """
        around = self.around.inside(i, total)
        fired: dict[Key, Any] = {}
        for mark, wire in self._wires:
            lanes = lanes_of(mark.params["layers"])
            found = tell(wire, mark.params, after(mark), around, lanes, mask(lanes))
            fired[wire.key] = fired.get(wire.key, False) | found
        if self._hunters:
            hunt = Hunt(self._hunters, self.marks[0].params["path"])
            old = lambda m: None if is_output(m) else before(m)  # noqa: E731
            found = hunt_for(hunt, self.marks, around, mask, old, after, again)
            for hunter in self._hunters:
                fired[hunter.key] = fired.get(hunter.key, False) | found
        return fired

    @property
    def may_settle(self) -> bool:
        """Whether marked values may be read after a step: what is kept until something happens is not told of them."""
        return not self.keepers and not self.around.hunt

    @property
    def guarded(self) -> bool:
        """Whether a tripwire looks at the state of the loop."""
        return bool(self._wires or self._hunters)

    @property
    def watched(self) -> list[Any]:
        """The marks whose values are read after a step."""
        own = [mark for emitter in (*self.emitters, *self.keepers) for mark in emitter.marks]
        return [*own, *(mark for mark, _ in self._wires), *(self.marks if self._hunters else ())]

    def none(self, count: Any, masks: Callable[[Emitter], Any]) -> None:
        """After a loop that made no step: say so."""
        for emitter in (*self.emitters, *self.keepers):
            mask = masks(emitter)
            send = lambda e=emitter, m=mask: self._send(e, jnp.int32(0), m, jnp.int32(0), None)  # noqa: E731
            if isinstance(count, int):
                send()
            else:
                lax.cond(count == 0, send, lambda: None)
