"""Check what is about to be released: `python release/check.py dist`. `nox -s release-check` builds it first."""

from __future__ import annotations

import email
import email.message
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
MODULES = {
    "jaxtap-core": ("jaxtap", "jaxtap_command"),
    "jaxtap-blackjax": ("jaxtap_blackjax",),
    "jaxtap-flax": ("jaxtap_flax",),
    "jaxtap-optax": ("jaxtap_optax",),
}
# What https://keepachangelog.com/en/1.1.0/ knows.
CHANGES = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
NEEDED = ("Name", "Version", "Summary", "License-Expression", "Requires-Python", "Description-Content-Type", "Keywords")


def version() -> str:
    """The one version, as the core's source has it."""
    text = (ROOT / "packages/jaxtap-core/src/jaxtap/_version.py").read_text(encoding="utf-8")
    return re.findall(r'__version__ = "(.+)"', text)[0]


def wheel_problems(dist: Path, name: str) -> Iterator[str]:
    """What is wrong with the wheel of a distribution."""
    stem = f"{name.replace('-', '_')}-{version()}"
    path = dist / f"{stem}-py3-none-any.whl"
    if not path.is_file():
        yield f"{path.name}: not there; build it with nox -s wheels"
        return
    with zipfile.ZipFile(path) as wheel:
        files = wheel.namelist()
        metadata = email.message_from_bytes(wheel.read(f"{stem}.dist-info/METADATA"))
        license_text = wheel.read(f"{stem}.dist-info/licenses/LICENSE").decode()
    tops = {file.split("/")[0] for file in files}
    if tops != {*MODULES[name], f"{stem}.dist-info"}:
        yield f"{path.name}: holds {sorted(tops)}, and should hold {MODULES[name]} alone"
    if f"{MODULES[name][0]}/py.typed" not in files:
        yield f"{path.name}: has no py.typed"
    if found := [
        file for file in files if re.search(r"(^|/)(tests?|conftest\.py|test_\w+\.py|__pycache__)(/|$)", file)
    ]:
        yield f"{path.name}: holds tests or caches: {found}"
    if license_text != (ROOT / "LICENSE").read_text(encoding="utf-8"):
        yield f"{path.name}: its license is not LICENSE"
    yield from (f"{path.name}: {problem}" for problem in metadata_problems(metadata, name))


def metadata_problems(metadata: email.message.Message, name: str) -> Iterator[str]:
    """What is wrong with the metadata of a distribution."""
    yield from (f"no {field} in the metadata" for field in NEEDED if not metadata.get(field))
    if metadata.get("Version") != version():
        yield f"version {metadata.get('Version')}, and the core's source has {version()}"
    needs = {line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line}
    major, minor, _ = version().split(".")
    expected = {"jax>=0.10", "numpy"} if name == "jaxtap-core" else {f"jaxtap-core~={major}.{minor}.0"}
    if needs != expected:
        yield f"needs {sorted(needs)}, and should need {sorted(expected)}"
    if not metadata.get_payload():
        yield "no description"


def source_problems(dist: Path, name: str) -> Iterator[str]:
    """What is wrong with the source distribution."""
    stem = f"{name.replace('-', '_')}-{version()}"
    path = dist / f"{stem}.tar.gz"
    if not path.is_file():
        yield f"{path.name}: not there; build it with nox -s wheels"
        return
    with tarfile.open(path) as archive:
        files = archive.getnames()
    for file in ("LICENSE", "README.md", "pyproject.toml", f"src/{MODULES[name][0]}/py.typed"):
        if f"{stem}/{file}" not in files:
            yield f"{path.name}: has no {file}"


def link_problems() -> Iterator[str]:
    """Links of the READMEs and of the pages in the root that lead nowhere; those to other machines are not followed."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("packages/*/README.md"), *ROOT.glob("*/README.md"), *ROOT.glob("docs/*.md")]
    for page in pages:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for link in re.findall(r"\]\(<?([^)\s>]+)>?\)", text):
            if re.match(r"[a-z]+:", link) or link.startswith("#"):
                continue
            if not (page.parent / link.partition("#")[0]).exists():
                yield f"{page.relative_to(ROOT)}: the link {link} leads nowhere"


def changelog_problems() -> Iterator[str]:
    """What is wrong with the changelog's entry for the version."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    entries = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    (entry, *_) = [*(e for e in entries if e.startswith(f"[{version()}]")), ""]
    if not re.match(r"\[[\d.]+\] - (\d{4}-\d{2}-\d{2}|unreleased)\n", entry):
        yield f"CHANGELOG.md: no entry `## [{version()}] - YYYY-MM-DD`, or `- unreleased`"
    kinds = re.findall(r"^### (.+)$", entry, flags=re.MULTILINE)
    if entry and (not kinds or set(kinds) - CHANGES or len(kinds) > len(set(kinds))):
        yield f"CHANGELOG.md: the kinds of changes are {kinds}; each of {sorted(CHANGES)} may be there once"
    if entry and not re.search(r"^- ", entry, flags=re.MULTILINE):
        yield "CHANGELOG.md: the entry lists nothing"


def citation_problems() -> Iterator[str]:
    """What is wrong with CITATION.cff."""
    found = re.findall(r'^version: "?([^"\n]+)"?$', (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    if found != [version()]:
        yield f"CITATION.cff: version {found}, and the core's source has {version()}"


def problems(dist: Path) -> list[str]:
    """All that is wrong."""
    found = [*link_problems(), *changelog_problems(), *citation_problems()]
    for name in MODULES:
        found += [*wheel_problems(dist, name), *source_problems(dist, name)]
    return found


def main() -> int:
    """Say what is wrong."""
    found = problems(Path(sys.argv[1]))
    print(*found, sep="\n", end="\n" if found else "")
    print(f"{version()}: {len(found) or 'no'} problem{'s' * (len(found) != 1)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
