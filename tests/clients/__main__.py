"""Run other libraries' programs under a lens, then BlackJAX's own tests of what it builds on jaxtap.

Arguments go to pytest for the first part, as in `python tests/clients -k diffrax`; with any, the second is left out.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import blackjax_suite

HERE = Path(__file__).parent


def programs(arguments: list[str]) -> int:
    """Run this folder's tests; returns pytest's exit code."""
    pytest = [sys.executable, "-m", "pytest", "-c", str(HERE / "pytest.ini"), *arguments, str(HERE)]
    return subprocess.run(pytest, check=False).returncode


def main(arguments: list[str]) -> int:
    """Run both parts, the second also if the first fails; returns 0 if nothing failed."""
    codes = [programs(arguments)]
    if not arguments:
        codes.append(blackjax_suite.run())
    return max(map(abs, codes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
