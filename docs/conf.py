"""Sphinx settings. The build fails on any warning and on any public name that no page documents."""

import sys
from pathlib import Path

import jax

import jaxtap

# Examples on several devices need them from the start.
jax.config.update("jax_num_cpu_devices", 8)
sys.path.insert(0, str(Path(__file__).parent / "ext"))

project = "jaxtap"
author = "the jaxtap developers"
copyright = author
version = release = jaxtap.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.napoleon",
    "coverage_check",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["narrow.css"]
html_title = f"jaxtap {release}"

# What docstrings write in backticks is code.
default_role = "literal"

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"

myst_heading_anchors = 2

nb_execution_mode = "force"
nb_execution_raise_on_error = True

# Examples in docstrings use the names of the package they document.
doctest_global_setup = "from jaxtap import *; del print"
