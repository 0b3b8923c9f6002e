"""BlackJAX's own tests of what it builds on jaxtap, run against the jaxtap and the BlackJAX installed here."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

BAR = "tests/test_progress_bar.py"
WARMUP = "tests/adaptation/test_mclmc_warmup_diagnostics.py"
TESTS = (BAR, f"{WARMUP}::test_jaxtap_recipe_fires_on_cliff")

# Tests of what jax-tap did to JAX and jaxtap does not do. In their place, `test_instead.py` says what jaxtap does.
DESELECTED = {
    f"{BAR}::ProgressBarTest::test_nonlifo_two_context_restore": (
        "asserts that jax.lax.scan is replaced while a context is open; jaxtap replaces no function of JAX"
    ),
    f"{BAR}::ProgressBarTest::test_jit_cache_staleness": (
        "its last part asserts that a function compiled before the context stays unseen in it, from a stale cache; "
        "jaxtap sees it"
    ),
    f"{BAR}::ProgressBarTest::test_cross_consumer_progress_bar_trace_in_user_record": (
        "asserts that a function compiled in one context keeps that context's select in the next, from a stale cache; "
        "in jaxtap each lens has its own"
    ),
}


def fetch(folder: Path) -> Path:
    """Download the source distribution of the installed BlackJAX, and unpack its tests, without the package itself."""
    release = f"blackjax=={importlib.metadata.version('blackjax')}"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "blackjax"]
    subprocess.run([*pip, "--dest", str(folder), release], check=True)
    (archive,) = folder.glob("blackjax-*.tar.gz")
    with tarfile.open(archive) as tar:
        root = tar.getnames()[0].split("/")[0]
        wanted = [m for m in tar.getmembers() if m.name.startswith((f"{root}/tests/", f"{root}/pytest.ini"))]
        tar.extractall(folder, wanted, filter="data")
    return folder / root


def run() -> int:
    """Run the tests; returns pytest's exit code."""
    for name, reason in DESELECTED.items():
        print(f"not run: {name}: {reason}")
    with tempfile.TemporaryDirectory() as folder:
        root = fetch(Path(folder))
        deselect = [argument for name in DESELECTED for argument in ("--deselect", name)]
        # From a folder of its own, so that no other configuration is found.
        pytest = [sys.executable, "-m", "pytest", "-ra", "-p", "no:cacheprovider", *deselect, *TESTS]
        return subprocess.run(pytest, cwd=root, check=False).returncode
