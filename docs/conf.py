"""Settings of Sphinx. ``scripts/docs.sh`` builds the pages; the folder of sources is the checkout, not docs/ alone.

So pages of bundles and tables of results, to which docs/ leads, are pages too, and each link is checked.
"""

import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT / "custom"), str(CHECKOUT / "docs" / "_extensions")]

project = "FedMed"
author = "the authors of FedMed"
extensions = ["generated_text", "myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

root_doc = "docs/index"
FOLDERS = ("docs", "bundles", "research", "containers")
include_patterns = [
    *("docs/**.md", "bundles/*/docs/README.md", "research/results/*.md", "containers/README.md"),
    *("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"),
]
# Other folders are not even looked through: runs may lie there.
exclude_patterns = [path.name for path in CHECKOUT.iterdir() if path.name not in FOLDERS]
exclude_patterns = [name for name in exclude_patterns if not name.endswith(".md")] + ["docs/_build"]

smartquotes = False  # --out stays two hyphens
myst_heading_anchors = 4  # named as the repository's host names them
autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # one list, not a heading for each attribute

html_theme = "furo"
html_title = "FedMed"
html_static_path = ["_static"]
html_css_files = ["fedmed.css"]
html_extra_path = ["_extra"]  # leads from the first address to docs/index.html
html_show_copyright = False  # LICENSE says it
html_show_sourcelink = False
html_copy_source = False
