"""Emission: one crossing from the device to the host, as cheap as XLA's Python callback."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jcore

from jaxtap._active import Key
from jaxtap._guard import Guard
from jaxtap._jaxprs import EFFECT
from jaxtap._lanes import Chosen
from jaxtap._mark import Path, Site
from jaxtap._signals import is_of_program, send

emit_p = jcore.Primitive("jaxtap_emit")
emit_p.multiple_results = True

_guard = Guard()


@dataclasses.dataclass(frozen=True)
class Part:
    """One payload of a crossing: the selected leaves of a carry or of outputs.

    Attributes:
      site: the loop.
      lanes: how many lanes are sent of each mapped axis, outermost first; every array of the payload starts with them.
        Empty also where the payload holds no array: such a step is one event, whatever is mapped.
      treedef: structure of what the selector returned.
      restores: for each array, what turns the shipped form into the value as the program had it.
      fixed: leaves of the selected value that are no arrays, by position.
      columns: what the leaves of the value are called in a table.
      ids: index of each lane that is sent, for each mapped axis; None where all are.
    """

    site: Site
    lanes: tuple[int, ...]
    treedef: Any
    restores: tuple[Callable[[np.ndarray], Any] | None, ...]
    fixed: tuple[tuple[int, Any], ...]
    columns: tuple[str, ...]
    ids: Chosen = None

    def lane(self, index: tuple[int, ...]) -> tuple[int, ...]:
        """The lane that an index among those sent stands for."""
        return index if self.ids is None else tuple(ids[i] for ids, i in zip(self.ids, index, strict=True))

    def value(self, arrays: Sequence[np.ndarray], lane: tuple[int, ...]) -> Any:
        """The selected value of one lane."""
        leaves: list[Any] = [
            (a[lane] if restore is None else restore(a[lane])) for a, restore in zip(arrays, self.restores, strict=True)
        ]
        for position, leaf in self.fixed:
            leaves.insert(position, leaf)
        return jax.tree_util.tree_unflatten(self.treedef, leaves)


class Speaker:
    """Which device of this process is listened to, of several that send the same: the first one heard."""

    def __init__(self) -> None:
        self._first: list[int] = []

    def is_one(self, device: int) -> bool:
        """Whether it is this device; the first one to ask is."""
        if not self._first:
            self._first.append(device)
        return self._first[0] == device


def receive(key: Key, entry: Any, arrays: Sequence[np.ndarray]) -> None:
    """Hand a crossing to the lens that is open under a key. Each event pays for what is done here."""
    try:
        lens = key.lens
        if lens is not None:
            # XLA takes its buffers back when the call returns.
            lens.take((entry, now(), len(arrays), *map(_copy, arrays)))
    except BaseException as error:  # noqa: BLE001 - it is raised again if it is the program's
        failed(error)


def failed(error: BaseException) -> None:
    """The program goes on whatever fails in receiving an event, unless it is the program's own doing."""
    if is_of_program(error):
        send(error)
        raise error
    _guard.failed("receiving an event", error)


_copy = np.ndarray.copy
now = time.time


@dataclasses.dataclass
class Entry:
    """The host end of one crossing: static knowledge, and the call that XLA makes.

    Attributes:
      key: the lens it belongs to.
      path: address of the loop.
      loop: the same object for all crossings of one loop in one program.
      site: the loop.
      sample_every: how often a step is sent.
      num_outer: how many loops are around this one.
      masked: whether a lane mask is sent.
      parts: the payloads.
      kinds: how many payloads a sampled step sends of each lane.
      shared: how many it sends once for all lanes.
      lanes: how many lanes are sent of each mapped axis, outermost first.
      speaker: tells which of several devices is listened to.
      device: index of the device that sends it.
      process: index of the process that receives it.
    """

    key: Key
    path: Path
    loop: object
    site: Site
    sample_every: int
    num_outer: int
    masked: bool
    parts: tuple[Part, ...]
    kinds: int
    shared: int
    lanes: tuple[int, ...]
    speaker: Speaker
    device: int = 0
    process: int = 0
    num_mask_operands = 2

    @property
    def waits(self) -> bool:
        """Whether what is sent may wait in a buffer for more to come."""
        return self.key.view.buffer != 1

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __post_init__(self) -> None:
        shared = self.shared if self.parts else 0
        self._each = len(self.parts) - shared
        self._once = shared
        self._all = self._each * math.prod(self.lanes) + shared
        # Each device runs the loop at its own pace.
        self.run = (self.loop, self.device)

    @property
    def num_scalars(self) -> int:
        """How many operands come before the mask and the payload."""
        return 1 + self.num_outer

    @property
    def shards(self) -> bool:
        """Whether each device sends the shard that it has."""
        return self.key.view.shards

    def events_in(self, mask: np.ndarray | None) -> int:
        """How many events a crossing holds."""
        return self._all if mask is None else self._each * int(mask.sum()) + self._once

    def __call__(self, count: np.ndarray, *arrays: np.ndarray) -> tuple[()]:
        """Receive a crossing, as `receive` does: written out, since each event of a loop pays for this."""
        try:
            take = self.key.take
            if take is not None:
                take((self, now(), len(arrays) + 1, int(count), *map(_copy, arrays)))
        except BaseException as error:  # noqa: BLE001 - it is raised again if it is the program's
            failed(error)
        return ()


class RingEntry(Entry):
    """The host end of a crossing with the newest steps of a loop, a row each."""

    @property
    def waits(self) -> bool:
        """It has waited."""
        return False


@dataclasses.dataclass(eq=False)
class PointEntry:
    """The host end of a crossing of a single equation or marked value.

    Attributes:
      key: the lens it belongs to.
      path: its address.
      site: what is known of it.
      tap: which of the lens's taps; -1 for a marked value.
      num_steps: how many loops are around it.
      masked: whether a lane mask is sent.
      parts: the one payload.
      lanes: size of each mapped axis, outermost first.
      speaker: tells which of several devices is listened to.
      is_urgent: whether it is of a tripwire that has fired.
      sample_every: how many steps there are for each that is sent, at the least.
      device: index of the device that sends it.
      process: index of the process that receives it.
    """

    key: Key
    path: Path
    site: Site
    tap: int
    num_steps: int
    masked: bool
    parts: tuple[Part, ...]
    lanes: tuple[int, ...]
    speaker: Speaker
    is_urgent: bool = False
    sample_every: int = 1
    device: int = 0
    process: int = 0
    num_mask_operands = 1

    @property
    def waits(self) -> bool:
        """Whether what is sent may wait in a buffer for more to come."""
        return self.key.view.buffer != 1 and not self.is_urgent

    @property
    def num_scalars(self) -> int:
        """How many operands come before the mask and the payload."""
        return self.num_steps

    @property
    def shards(self) -> bool:
        """Whether each device sends the shard that it has."""
        return self.key.view.shards

    def events_in(self, mask: np.ndarray | None) -> int:
        """How many events a crossing holds."""
        lanes = self.parts[0].lanes
        return int(mask.sum()) if mask is not None and lanes else math.prod(lanes)

    def __call__(self, *arrays: np.ndarray) -> tuple[()]:
        """Receive a crossing. The program goes on whatever fails here."""
        receive(self.key, self, arrays)
        return ()


@dataclasses.dataclass(eq=False)
class HuntEntry:
    """The host end of a crossing with a summary of each value of a step that has gone wrong.

    Attributes:
      hunters: the lenses and taps that look.
      path: address of the loop, or of the part of its step.
      site: the equations.
      total: trip count of the loop, or None.
      num_steps: how many loops are around it, itself counted.
      masked: whether a lane mask is sent.
      is_whole: whether it is the step, not a part of it.
      speaker: tells which of several devices is listened to.
      device: index of the device that sends it.
      process: index of the process that receives it.
    """

    hunters: tuple[Any, ...]
    path: Path
    site: Site
    total: int | None
    num_steps: int
    masked: bool
    is_whole: bool
    speaker: Speaker
    device: int = 0
    process: int = 0
    # Whether a value is finite is asked of all of it.
    shards = False

    def __call__(self, *arrays: Any) -> tuple[()]:
        """Receive a crossing. The program goes on whatever fails here."""
        for key in dict.fromkeys(hunter.key for hunter in self.hunters):
            receive(key, self, arrays)
        return ()


def send_from_point(entry: PointEntry | HuntEntry, steps: Sequence[Any], mask: Any, arrays: Sequence[Any]) -> None:
    """One crossing of what is no loop: the steps of the loops around, the lane mask if there is one, the payload."""
    head = [*steps, *([] if mask is None else [mask])]
    emit_p.bind(*map(jnp.asarray, head), *arrays, entry=entry)


@emit_p.def_effectful_abstract_eval
def _abstract_eval(*_: Any, **__: Any) -> tuple[list[Any], set[Any]]:
    return [], {EFFECT}


# --- Shipping values that a host callback does not take ------------------------------------------------------


def _narrow(dtype: Any) -> Any:
    """A dtype of at least a byte that holds every value of a narrower one; None where there is no need."""
    dtype = jnp.dtype(dtype)
    if jnp.issubdtype(dtype, jnp.integer) and jnp.iinfo(dtype).bits < 8:
        return jnp.int8 if jnp.issubdtype(dtype, jnp.signedinteger) else jnp.uint8
    if jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits < 8:
        return jnp.float32
    return None


def shipped(value: Any) -> tuple[Any, Callable[[np.ndarray], Any] | None]:
    """A traced array in a form that crosses to the host, and what restores it there."""
    value = jnp.asarray(value)
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        impl = jax.random.key_impl(value)
        return jax.random.key_data(value), lambda data: jax.random.wrap_key_data(jnp.asarray(data), impl=impl)
    wide = _narrow(value.dtype)
    if wide is not None:
        dtype = value.dtype
        return value.astype(wide), lambda data: data.astype(dtype)
    return value, None
