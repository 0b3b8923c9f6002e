"""Event values as strict JSON and back, bit for bit.

What JSON has stays bare: None, bools, ints, strings and finite floats; a tuple is a list, a dict with string keys an
object. All else is an object of one entry whose key, the tag, ends in a bracket:

    {"float32[]": 0.1}                          array of shape ()
    {"bfloat16[2,2]": [[1.0, "nan"], [0.5, "-inf"]]}
    {"complex64[1]": [[0.5, -2.0]]}             real and imaginary parts
    {"float32[1000]": "base64:zczMPQ..."}       raw bytes, little-endian, last axis fastest
    {"float32()": 0.1}                          NumPy scalar
    {"key<threefry2x32>": {"uint32[2]": [0, 42]}}
    {"list()": [1, 2]}
    {"dict()": [[3, "three"]]}                  a dict with other keys, or one that would look like a tag
    {"namedtuple(State)": {"count": 1, "mu": 2}}
    {"float()": "nan"}, {"complex()": [0.5, -2.0]}
    {"repr()": "<object object at 0x7f>"}       stands for a value that has no form here; read as a string

An array is written as numbers where it is small and where reading them gives back the very same bits. That is checked
for each array: a NaN may carry a payload, and XLA runs host callbacks in a floating point mode in which Python prints a
subnormal as 0.0. Otherwise its bytes are written. JAX runs on little-endian machines alone, and so does this.
"""

from __future__ import annotations

import base64
import collections
import functools
import math
import re
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxtap._dtypes import dtype_name, dtype_named, family, part_dtype

# Larger arrays are bytes: no one reads them, and numbers would take twice the room.
READABLE_SIZE = 32

BASE64 = "base64:"
# How many keys of a dict may share their hashes with others: those of 1.0 and 1, or -1 and -2, do.
_ALIKE = 1000
# What stands for a float that is no number.
_NO_NUMBERS = ("nan", "-nan", "inf", "-inf")
_TAG = re.compile(r"(\w+)[\[(<](.*)[\])>]", re.DOTALL)

# What stands in the file for a value that cannot be written.
Otherwise = Callable[[Any], Any]


def encode(value: Any, otherwise: Otherwise) -> Any:
    """The JSON form of `value`; `otherwise(part)` gives that of a part that has none.

    A registered pytree that is none of tuple, list, dict and namedtuple becomes a dict from key path to leaf,
    for example `{".params['w']": ...}`.
    """
    if isinstance(value, tuple):
        return _encode_tuple(cast("tuple[Any, ...]", value), otherwise)
    if isinstance(value, list):
        return {"list()": [encode(item, otherwise) for item in cast("list[Any]", value)]}
    if isinstance(value, dict):
        return _encode_dict(cast("dict[Any, Any]", value), otherwise)
    try:
        return encode_leaf(value)
    except Exception:  # noqa: BLE001 - a leaf of a foreign type, or a deleted array, may raise anything
        return _encode_node(value, otherwise)


def decode(data: Any) -> Any:
    """The value whose JSON form is `data`.

    Raises:
      ValueError, TypeError: `data` is not what `encode` returns.
    """
    if isinstance(data, list):
        return tuple(decode(item) for item in cast("list[Any]", data))
    if not isinstance(data, dict):
        return data
    items = cast("dict[str, Any]", data)
    if _looks_tagged(items):
        return _decode_tagged(*next(iter(items.items())))
    return {key: decode(item) for key, item in items.items()}


def decode_jaxtap(value_kind: str, value: Any) -> Any:
    """The value of a line that jax-tap 0.3 wrote: plain numbers, arrays as nested lists, dtypes not kept."""
    if value_kind == "tuple":
        return tuple(_from_lists(item) for item in value)
    return _from_lists(value)


# Containers


def _encode_tuple(value: tuple[Any, ...], otherwise: Otherwise) -> Any:
    items = [encode(item, otherwise) for item in value]
    fields: tuple[str, ...] | None = getattr(value, "_fields", None)
    if fields is None:
        return items
    return {f"namedtuple({type(value).__name__})": dict(zip(fields, items, strict=True))}


def _encode_dict(value: dict[Any, Any], otherwise: Otherwise) -> Any:
    if all(isinstance(key, str) for key in value) and not _looks_tagged(value):
        return {key: encode(item, otherwise) for key, item in value.items()}
    return {"dict()": [[_encode_key(key, otherwise), encode(item, otherwise)] for key, item in value.items()]}


def _encode_key(key: Any, otherwise: Otherwise) -> Any:
    return encode(key, otherwise) if _reads_back_hashable(key) else otherwise(key)


def _reads_back_hashable(key: Any) -> bool:
    if isinstance(key, tuple):
        return all(_reads_back_hashable(item) for item in cast("tuple[Any, ...]", key))
    return key is None or isinstance(key, (str, int, float, complex, np.generic))


def _encode_node(value: Any, otherwise: Otherwise) -> Any:
    leaves = jax.tree_util.tree_flatten_with_path(value)[0]
    if any(leaf is value for _, leaf in leaves):
        return otherwise(value)
    return _encode_dict({jax.tree_util.keystr(path): leaf for path, leaf in leaves}, otherwise)


def _looks_tagged(items: dict[str, Any]) -> bool:
    return len(items) == 1 and next(iter(items)).endswith(("]", ")", ">"))


def _decode_tagged(tag: str, data: Any) -> Any:
    match = _TAG.fullmatch(tag)
    if match is None:
        raise ValueError(f"unknown tag {tag!r}")
    name, inside = match.groups()
    if tag.endswith("]"):
        return _array_in_file(data, dtype_named(name), _shape(inside))
    if tag.endswith(">"):
        return jax.random.wrap_key_data(decode(data), impl=inside)
    if name == "namedtuple":
        return _namedtuple_type(inside, tuple(data))(*map(decode, data.values()))
    if name in _DECODERS:
        return _DECODERS[name](data)
    return _array_in_file(data, dtype_named(name), ())[()]


def _shape(text: str) -> tuple[int, ...]:
    sizes = text.split(",") if text else []
    if not all(size.isascii() and size.isdigit() for size in sizes):
        raise ValueError(f"{text!r} is no shape")
    return tuple(map(int, sizes))


# Not kept without end: a file may name any number of them.
@functools.lru_cache(maxsize=1024)
def _namedtuple_type(name: str, fields: tuple[str, ...]) -> Callable[..., Any]:
    make: Any = collections.namedtuple
    return make(name if name.isidentifier() else "NamedTuple", fields, rename=True)


def _dict(items: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """A dict of some items. Keys made to share one hash would take time that grows with the square of their number."""
    if len(items) > _ALIKE and len(items) - len({hash(key) for key, _ in items}) > _ALIKE:
        raise ValueError(f"more than {_ALIKE} keys of a dict share their hashes")
    return dict(items)


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "list": lambda data: [decode(item) for item in data],
    "dict": lambda data: _dict([(decode(key), decode(item)) for key, item in data]),
    "float": lambda data: _array_in_file(data, np.dtype(np.float64), ()).item(),
    "complex": lambda data: _array_in_file(data, np.dtype(np.complex128), ()).item(),
    "repr": str,
}


# Leaves


def encode_leaf(value: Any) -> Any:
    """The JSON form of a leaf.

    Raises:
      TypeError: it has none.
    """
    if isinstance(value, np.ndarray):
        return _encode_array(cast("np.ndarray[Any, Any]", value))
    if isinstance(value, np.generic) and not isinstance(value, str):
        scalar: np.ndarray[Any, Any] = np.asarray(value)
        return {f"{dtype_name(scalar.dtype)}()": encode_data(scalar)}
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float):
        data = encode_data(np.asarray(value, np.float64))
        return data if isinstance(data, float) else {"float()": data}
    if isinstance(value, complex):
        return {"complex()": encode_data(np.asarray(value, np.complex128))}
    if isinstance(value, jax.Array):
        return _encode_jax(value)
    raise TypeError(f"a {type(value).__name__} has no JSON form")


def _encode_jax(value: jax.Array) -> Any:
    if not jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return _encode_array(np.asarray(value))
    implementation = jax.random.key_impl(value)
    if not isinstance(implementation, str):
        raise TypeError("a key of an unregistered implementation has no name to be read back by")
    return {f"key<{implementation}>": _encode_array(np.asarray(jax.random.key_data(value)))}


def _encode_array(value: np.ndarray[Any, Any]) -> dict[str, Any]:
    name = dtype_name(value.dtype)
    return {f"{name}[{','.join(map(str, value.shape))}]": encode_data(np.asarray(value, dtype_named(name)))}


def encode_data(array: np.ndarray[Any, Any]) -> Any:
    """The numbers of an array, or its bytes where these say more."""
    raw = array.tobytes()
    if array.size <= READABLE_SIZE and family(array.dtype) is not None:
        numbers = _numbers(array)
        if _array(numbers, array.dtype, array.shape).tobytes() == raw:
            return numbers
    return BASE64 + base64.b64encode(raw).decode("ascii")


def _array(data: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """The array that `encode_data` wrote."""
    if isinstance(data, str) and data.startswith(BASE64):
        raw = base64.b64decode(data[len(BASE64) :], validate=True)
        if len(raw) != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"{len(raw)} bytes are no {dtype.name}{list(shape)}")
        if not dtype.itemsize:  # however many items: a copy would visit each
            return np.empty(shape, dtype)
        return np.ndarray(shape, dtype, raw).copy()  # the copy can be written to
    if family(dtype) is complex:
        part = part_dtype(dtype)
        return _array(data, part, (*shape, 2)).view(dtype).reshape(shape)
    flat = _flat(data)
    if family(dtype) is float:
        flat = [float(item) for item in flat]  # also "nan" and "-inf"
    return np.array(flat, dtype).reshape(shape)


def _array_in_file(data: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """The array that `encode_data` wrote, if it was `_data`: NumPy makes an array of much else.

    Raises:
      ValueError, TypeError: it was not.
    """
    if not (isinstance(data, str) and data.startswith(BASE64)):
        allowed = (bool,) if dtype == np.bool_ else (int,) if family(dtype) is int else (float, int)
        for item in _flat(data):
            if type(item) not in allowed and (float not in allowed or item not in _NO_NUMBERS):
                raise TypeError(f"a {type(item).__name__} is no item of an array of {dtype.name}")
    array = _array(data, dtype, shape)
    if dtype == np.bool_ and (array.view(np.uint8) > 1).any():
        raise ValueError("a bool is a byte of 0 or 1")
    return array


def _flat(data: Any) -> list[Any]:
    return np.array(data, dtype=object).ravel().tolist()


def _numbers(array: np.ndarray[Any, Any]) -> Any:
    """Nested lists of ints, bools or the shortest floats that name each item."""
    if not array.size:
        return []
    if family(array.dtype) is int:
        return (array.astype(np.int64) if array.dtype.kind == "V" else array).tolist()
    if family(array.dtype) is complex:
        return _numbers(array.reshape((*array.shape, 1)).view(part_dtype(array.dtype)))
    flat = [_number(item) for item in array.ravel()]
    return np.array(flat, dtype=object).reshape(array.shape).tolist()


def _number(item: Any) -> float | str:
    # By its text, not by its value: the text of a float32 is shorter, and what json will print is to be checked.
    number = float(str(item))
    if math.isfinite(number):
        return number
    sign = "-" if math.copysign(1.0, float(item)) < 0 else ""
    return f"{sign}{'nan' if math.isnan(number) else 'inf'}"


# Lines of jax-tap


def _from_lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _from_lists(item) for key, item in cast("dict[str, Any]", value).items()}
    if not isinstance(value, list):
        return value
    items = cast("list[Any]", value)
    try:
        array = np.asarray(items)
    except ValueError:  # a ragged list was a tuple of arrays
        return tuple(_from_lists(item) for item in items)
    return tuple(_from_lists(item) for item in items) if array.dtype == object else array
