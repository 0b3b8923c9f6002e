"""Sphinx settings.

The build fails on any warning, on a public name that no page documents or that has no example, on a block of Python
that is not executed and does not say why, and on a test that a page names and that does not exist.
"""

import importlib
import sys
from pathlib import Path

import jax
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer

import jaxtap

# Examples on several devices need them from the start.
jax.config.update("jax_num_cpu_devices", 8)
sys.path.insert(0, str(Path(__file__).parent / "ext"))
figures = importlib.import_module("figures")

project = "jaxtap"
author = "the jaxtap developers"
copyright = author
version = release = jaxtap.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "coverage_check",
    "executed_check",
    "named_tests",
    "named_files",
    "named_selectors",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["jaxtap.css"]
html_title = f"jaxtap {release}"

# What docstrings write in backticks is code.
default_role = "literal"

autodoc_member_order = "bysource"
napoleon_use_ivar = True
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"

myst_heading_anchors = 2
myst_enable_extensions = ["colon_fence", "substitution"]
myst_substitutions = figures.substitutions()

nb_execution_mode = "force"
# A busy machine takes its time.
nb_execution_timeout = 300
nb_execution_raise_on_error = True
# Each line of an alert is written by itself; a page shows them together.
nb_merge_streams = True

# What is copied of an example is the code alone.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_selector = "div:not(.highlight-none) > div.highlight > pre"

# Examples in docstrings use the names of the package they document. What jaxtap prints to stderr is part of the output
# of an example, and is looked at. What examples write goes into a folder that is thrown away.
doctest_global_setup = """
import io, os, sys, tempfile
from jaxtap import *
del print

class _Shown(io.TextIOBase):
    def write(self, text): return sys.stdout.write(text)

sys.stderr = _Shown()
_before, _folder = os.getcwd(), tempfile.TemporaryDirectory()
os.chdir(_folder.name)
"""
doctest_global_cleanup = """
sys.stderr = sys.__stderr__
os.chdir(_before)
_folder.cleanup()
"""


def setup(app: Sphinx) -> None:
    # The two forms of `record` differ in two arguments of nearly thirty: one signature says it all.
    analyzer = ModuleAnalyzer.for_module("jaxtap._api")
    analyzer.analyze()
    analyzer.overloads.clear()
