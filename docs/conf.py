"""How the site is built: `make docs`, which is `sphinx-build docs site` with warnings as errors."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

import tacit

project = "Tacit"
author = "the Tacit authors"
version = release = tacit.__version__
html_title = f"Tacit {release}"

extensions = ["myst_parser", "sphinx.ext.autodoc", "command_reference", "rule_reference", "plain_docstrings"]
exclude_patterns = ["_extensions"]
smartquotes = False  # they would make one dash of the two before an option

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

# Docstrings put names in single backticks; they are code.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True}
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88

html_theme = "furo"
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
pygments_style = "default"
pygments_dark_style = "monokai"
