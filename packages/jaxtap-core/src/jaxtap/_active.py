"""Which lenses are open, in which thread, and the key under which JAX caches what is traced through them."""

from __future__ import annotations

import contextvars
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax

from jaxtap._config import View

if TYPE_CHECKING:
    from jaxtap._chunks import Chunk
    from jaxtap._lens import Lens

# JAX keeps one program per value of this context: no cache is ever cleared, and clean programs stay clean.
_context = jax.make_user_context(())


class Key:
    """Stands for a lens in compiled programs: one view of the program, in one of several slots.

    Two lenses with one view, one after the other, share a key, so that the second finds the programs that
    the first has compiled. Two that are open at the same time do not: each has a slot of its own.

    Attributes:
      view: the device-side configuration.
      get: gives the lens that is open under this key, or None.
      take: takes a crossing that arrives for that lens, or None.
      take_chunks: takes all that arrives with a flush, with the time, or None.
      tapped: primitives of the equations that programs compiled through it hold marks of.
      left_out: addresses of the loops in programs compiled through it that its filters leave out.
    """

    __slots__ = ("__weakref__", "get", "left_out", "take", "take_chunks", "tapped", "view")

    def __init__(self, view: View) -> None:
        self.view = view
        self.tapped: set[str] = set()
        self.left_out: set[str] = set()
        self.get: Callable[[], Lens | None] = lambda: None
        self.take: Callable[[tuple[Any, ...]], None] | None = None
        self.take_chunks: Callable[[list[Chunk], float], None] | None = None

    @property
    def lens(self) -> Lens | None:
        """The lens that is open under this key, or None."""
        return self.get()

    def route(self, lens: Lens | None) -> None:
        """Send what arrives under this key to `lens` from now on."""
        self.get = (lambda: None) if lens is None else weakref.ref(lens)
        self.take = None if lens is None else lens.take
        self.take_chunks = None if lens is None else lens.take_chunks

    def lend(self, lens: Lens) -> None:
        """Send what arrives under this key to `lens` for as long as something else keeps it alive.

        JAX keeps keys as long as the functions that were compiled under them, which may be for good.
        """
        self.get = found = weakref.ref(lens)

        def take(raw: tuple[Any, ...]) -> None:
            if (alive := found()) is not None:
                alive.take(raw)

        def take_chunks(chunks: list[Chunk], now: float) -> None:
            if (alive := found()) is not None:
                alive.take_chunks(chunks, now)

        self.take, self.take_chunks = take, take_chunks

    def own(self, lens: Lens) -> None:
        """Send what arrives under this key to `lens`, and keep it alive as long as programs with this key are."""
        self.get, self.take, self.take_chunks = lambda: lens, lens.take, lens.take_chunks


_lock = threading.RLock()
_keys: weakref.WeakValueDictionary[tuple[View, int], Key] = weakref.WeakValueDictionary()
_slots: dict[View, set[int]] = {}


def take_key(view: View) -> tuple[Key, int]:
    """The key of the lowest free slot for a view."""
    with _lock:
        used = _slots.setdefault(view, set())
        slot = next(i for i in range(len(used) + 1) if i not in used)
        used.add(slot)
        key = _keys.get((view, slot))
        if key is None:
            key = _keys[(view, slot)] = Key(view)
        return key, slot


def give_key_back(view: View, slot: int) -> None:
    """Free a slot."""
    with _lock:
        used = _slots.get(view, set())
        used.discard(slot)
        if not used:
            _slots.pop(view, None)


class _Stack(threading.local):
    """The lenses open in one thread, outermost first, and JAX's context that says so."""

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self.base: Any = None


_stack = _Stack()
_looks_away = contextvars.ContextVar("jaxtap_looks_away", default=False)
_everywhere: list[Key] = []
# How many lenses are open in the whole process: the interception is in place while there are any.
_open: dict[int, Lens] = {}


def active() -> tuple[Key, ...]:
    """The keys of the lenses that see this thread, outermost first."""
    return () if looks_away() else (*_everywhere, *_stack.keys)


def unseen(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function while no lens looks, such as to compute the results of what has been seen already."""
    # Python leaves a context of its own on every way out, where Ctrl-C could come before a `finally`.
    context = contextvars.copy_context()
    context.run(_looks_away.set, True)
    return context.run(function, *args, **kwargs)


def looks_away() -> bool:
    """Whether no lens looks at what this thread runs now."""
    return _looks_away.get()


def has_hooks() -> bool:
    """Whether a lens that sees this thread has hooks on a library."""
    return any(key.view.hooks for key in active())


def open_lenses() -> list[Lens]:
    """Every open lens of the process."""
    return list(_open.values())


def _sync() -> None:
    """Tell JAX which lenses see this thread."""
    if _stack.keys:
        entered = _context((*_everywhere, *_stack.keys))
        entered.__enter__()
        # Only the first of these remembers that nothing was set here before.
        if _stack.base is None:
            _stack.base = entered
    elif _stack.base is not None:
        base, _stack.base = _stack.base, None
        base.__exit__(None, None, None)


def enter(key: Key, lens: Lens, everywhere: bool = False) -> None:
    """Open a lens in this thread, or in all threads."""
    with _lock:
        _open[id(lens)] = lens
        if everywhere:
            _everywhere.append(key)
            _context.set_global(tuple(_everywhere))
        else:
            _stack.keys.append(key)
        _sync()


def leave(key: Key, lens: Lens, everywhere: bool = False) -> None:
    """Close a lens; closing in another order than opening, or in another thread, is allowed."""
    with _lock:
        _open.pop(id(lens), None)
        keys = _everywhere if everywhere else _stack.keys
        for i in reversed(range(len(keys))):
            if keys[i] is key:
                del keys[i]
                break
        if everywhere:
            _context.set_global(tuple(_everywhere))
        _sync()


def forget() -> None:
    """Close every lens that this thread or all threads see, whatever state it is in."""
    with _lock:
        _stack.keys.clear()
        _everywhere.clear()
        _open.clear()
        _slots.clear()
        _context.set_global(())
        _sync()


def purge(is_closed: Any) -> None:
    """Drop keys of lenses that another thread has closed, such as by collecting an abandoned generator."""
    stale = [key for key in _stack.keys if is_closed(key)]
    if stale:
        _stack.keys[:] = [key for key in _stack.keys if key not in stale]
        _sync()
