"""`jaxtap env`: what JAX runs on, what it was set to, and what can still be set."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from typing import Any

import jax

from jaxtap_command._bad import DONE
from jaxtap_command._output import say, table, write_json
from jaxtap_command._target import load_module

_ANY_TIME = "any time"
_BEFORE_DEVICES = "before the first device is used"
_BEFORE_IMPORT = "before jax is imported"
# Read when the backends start, and not again.
_EARLY_OPTIONS = frozenset(
    {
        "jax_platforms",
        "jax_num_cpu_devices",
        "jax_cpu_collectives_implementation",
        "jax_cpu_enable_async_dispatch",
        "jax_cuda_visible_devices",
        "jax_rocm_visible_devices",
        "jax_pjrt_client_create_options",
        "jax_mock_gpu_topology",
    }
)
_EARLY_VARIABLES = (
    "XLA_FLAGS",
    "LIBTPU_INIT_ARGS",
    "CUDA_VISIBLE_DEVICES",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_ALLOCATOR",
    "TF_GPU_ALLOCATOR",
)
_IMPORT_VARIABLES = ("TPU_LIBRARY_PATH",)
_DEFAULTS = "import jax, json; print(json.dumps({k: repr(v) for k, v in jax.config.values.items()}))"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the subcommand takes."""
    parser.add_argument("--after", metavar="MODULE", help="import this first, and see what it has set")


def run(options: argparse.Namespace) -> int:
    """Collect, and write."""
    if options.after:
        load_module(options.after)
    report = environment()
    if options.format == "json":
        write_json(report)
    else:
        _write(report)
    return DONE


def environment() -> dict[str, Any]:
    """What JAX runs on and what it was set to."""
    return {
        "python": platform.python_version(),
        "jax": jax.__version__,
        "jaxlib": _version("jaxlib"),
        "jaxtap": _version("jaxtap-core") or "from source",
        "numpy": _version("numpy"),
        "platform": platform.platform(),
        "devices": _devices(),
        "variables": _variables(),
        "cache": _cache(),
        "changed": _changed(),
        "only_early": {
            _BEFORE_DEVICES: sorted([*(o for o in _EARLY_OPTIONS if o in jax.config.values), *_EARLY_VARIABLES]),
            _BEFORE_IMPORT: ["the variables JAX_...", *_IMPORT_VARIABLES],
        },
    }


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _devices() -> list[dict[str, Any]] | str:
    try:
        return [
            {"id": d.id, "platform": d.platform, "kind": d.device_kind, "process": d.process_index}
            for d in jax.devices()
        ]
    except RuntimeError as error:
        return f"none: {error}"


def _variables() -> dict[str, dict[str, str]]:
    """The variables that JAX and XLA look at, where they are set, and when they are read."""
    found: dict[str, dict[str, str]] = {}
    for name, value in sorted(os.environ.items()):
        if name in _EARLY_VARIABLES:
            found[name] = {"value": value, "read": _BEFORE_DEVICES}
        elif name in _IMPORT_VARIABLES or name.startswith(("JAX_", "JAXLIB_")):
            found[name] = {"value": value, "read": _BEFORE_IMPORT}
    return found


def _cache() -> dict[str, Any]:
    """The persistent cache, and the gates that a program passes before it is written there."""
    values = jax.config.values
    directory = values.get("jax_compilation_cache_dir")
    seconds = values.get("jax_persistent_cache_min_compile_time_secs", 0.0)
    size = values.get("jax_persistent_cache_min_entry_size_bytes", 0)
    try:
        process = jax.process_index()
    except RuntimeError:
        process = 0
    return {
        "directory": directory,
        "enabled": bool(directory) and bool(values.get("jax_enable_compilation_cache", True)),
        "gates": {
            "jax_persistent_cache_min_compile_time_secs": {
                "value": seconds,
                "keeps_out": f"what compiles in less than {seconds:g} s" if seconds > 0 else "nothing",
            },
            "jax_persistent_cache_min_entry_size_bytes": {
                "value": size,
                "keeps_out": f"what is smaller than {size} bytes" if size > 0 else "nothing",
            },
            "process": {
                "value": process,
                "keeps_out": "nothing" if process == 0 else "everything: only process 0 writes",
            },
        },
    }


def _changed() -> list[dict[str, str]]:
    """The config options that are not at their default, and until when they can be set."""
    defaults = _defaults()
    return [
        {"option": name, "value": repr(value), "default": defaults[name], "can_be_set": _until(name)}
        for name, value in sorted(jax.config.values.items())
        if name in defaults and repr(value) != defaults[name]
    ]


def _until(option: str) -> str:
    return _BEFORE_DEVICES if option in _EARLY_OPTIONS else _ANY_TIME


def _defaults() -> dict[str, str]:
    """JAX's config in a process without any variable of its own."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    run = subprocess.run([sys.executable, "-c", _DEFAULTS], env=clean, capture_output=True, text=True, check=False)
    return json.loads(run.stdout) if run.returncode == 0 else {}


def _write(report: dict[str, Any]) -> None:
    for name in ("python", "jax", "jaxlib", "jaxtap", "numpy", "platform"):
        say(f"{name:9} {report[name] or 'not installed'}")
    devices = report["devices"]
    if isinstance(devices, str):
        say(f"devices   {devices}")
    else:
        for device in devices:
            say(f"device    {device['platform']}:{device['id']} {device['kind']}, process {device['process']}")
    say()
    _write_cache(report["cache"])
    say()
    if report["variables"]:
        table(["variable", "value", "set it"], [[k, v["value"], v["read"]] for k, v in report["variables"].items()])
    else:
        say("no variable of JAX or XLA is set")
    say()
    if report["changed"]:
        rows = [[c["option"], c["value"], c["default"], c["can_be_set"]] for c in report["changed"]]
        table(["option", "value", "default", "can be set"], rows)
    else:
        say("every option of jax.config is at its default")
    say()
    for when, names in report["only_early"].items():
        say(f"only {when}: {', '.join(names)}")
    say("every other option of jax.config: any time, with jax.config.update")


def _write_cache(cache: dict[str, Any]) -> None:
    if cache["enabled"]:
        say(f"cache     {cache['directory']}")
    else:
        say(
            f"cache     off: {'jax_enable_compilation_cache is False' if cache['directory'] else 'no directory is set'}"
        )
    for name, gate in cache["gates"].items():
        say(f"    {name} {gate['value']:g}: keeps out {gate['keeps_out']}")
