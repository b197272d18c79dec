"""Sphinx's settings for the site: `make site`."""

import os
import sys
from pathlib import Path

SITE = Path(__file__).resolve().parent
sys.path[:0] = [str(SITE), str(SITE.parent), str(SITE.parents[1])]  # the extensions, the course, the library
os.environ.setdefault("TRITON_INTERPRET", "1")  # the kernels' docstrings are read without a GPU

project = "minitransformer"
author = "the authors of minitransformer"
language = "en"
root_doc = "index"
address = os.environ.get("URL", "").rstrip("/")
html_baseurl = f"{address}/" if address else ""

extensions = [
    "myst_nb",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinx_tippy",
    "sphinxcontrib.katex",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "columns",
    "docstrings",
    "reference",
    "repository",
]
templates_path = ["templates"]

# Notebooks show the outputs that are committed; nothing is executed here.
nb_execution_mode = "off"
myst_enable_extensions = ["attrs_inline", "colon_fence", "dollarmath", "html_image"]
myst_heading_anchors = 4  # the anchors that a code host gives to headings
myst_dmath_double_inline = True

# Formulas are set while the site is built: pages load KaTeX's style and fonts, and no script.
katex_prerender = True
katex_js_path = str(SITE / "node_modules/katex/dist/katex.min.js")
katex_css_path = "katex.min.css"

# A link to the glossary shows the word's meaning.
tippy_js = ["popper.min.js", "tippy.umd.min.js"]
tippy_skip_urls = [r"(?!.*glossary\.html#)"]
tippy_enable_wikitips = tippy_enable_doitips = False

# The reference shows names as users import them, in the order of the source.
add_module_names = False
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88

html_theme = "sphinx_book_theme"
html_title = "minitransformer"
html_static_path = ["static"]
html_css_files = ["site.css", "reference.css"]
html_theme_options = {
    "use_download_button": False,
    "show_navbar_depth": 1,
    "show_toc_level": 2,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_show_sphinx = False
html_show_copyright = False
html_last_updated_fmt = None
exclude_patterns = ["files", "vendored"]


def setup(app):
    """Take what `stage.py` has put beside the pages."""
    app.config.html_static_path.append(str(app.srcdir / "vendored"))
    app.config.html_extra_path.append(str(app.srcdir / "files"))
