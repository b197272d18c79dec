"""Sphinx's settings for the site that `make site` builds."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from sphinx.application import Sphinx

SITE = Path(__file__).resolve().parent
sys.path[:0] = [str(SITE), str(SITE.parent), str(SITE.parents[1])]  # the extensions, the course, the library
os.environ.setdefault("TRITON_INTERPRET", "1")  # the kernels' docstrings are read without a GPU

project = html_title = "minitransformer"
address = os.environ.get("URL", "").rstrip("/")
extensions = [
    "columns",
    "docstrings",
    "glossary",
    "katex",
    "myst_nb",
    "reference",
    "repository",
    "sphinx.ext.githubpages",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_tippy",
]
exclude_patterns = ["files", "vendored"]

nb_execution_mode = "off"  # notebooks show the outputs that are committed
nb_merge_streams = True  # what a cell prints stands in one box
myst_enable_extensions = ["attrs_inline", "colon_fence", "dollarmath", "html_image"]
myst_heading_anchors = 4  # the anchors that a code host gives to headings
myst_dmath_double_inline = True

html_math_renderer = "katex"

# A link to a word of the glossary shows what the word means.
tippy_js = ["popper.min.js", "tippy-bundle.umd.min.js"]
tippy_props = {"placement": "top", "maxWidth": 400}
tippy_skip_urls = [r"(?!.*glossary\.html#)"]
tippy_enable_wikitips = tippy_enable_doitips = False

# The reference shows names as users import them, in the order of the source.
add_module_names = False
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_mock_imports = [name for name in ("torch", "triton") if find_spec(name) is None]
python_maximum_signature_line_length = 88

copybutton_selector = "div.highlight-ipython3 pre, div.highlight-python pre, div.highlight-bash pre"

html_context = {"url": f"{address}/" if address else ""}
html_theme = "furo"
html_baseurl = f"{address}/" if address else ""
html_favicon = "static/icon.svg"
html_scaled_image_link = False  # a picture may stand in a link of its own
html_static_path = ["static"]
html_css_files = ["katex.min.css", "site.css", "reference.css"]
html_js_files = ["site.js"]
html_show_copyright = False
html_show_search_summary = False  # it would load every page that is found
html_sourcelink_suffix = ""
html_theme_options = {"top_of_page_buttons": ["view"]}  # templates/components
pygments_style, pygments_dark_style = "a11y-high-contrast-light", "a11y-high-contrast-dark"
templates_path = ["templates"]

if address:
    extensions.append("sphinxext.opengraph")
    ogp_site_url = html_baseurl
    ogp_social_cards = {"enable": False}
    ogp_image = f"{html_baseurl}github/pictures/attention.png"
    ogp_image_alt = "What one head of a trained translator looks at"


def setup(app: Sphinx) -> None:
    """Take what `stage.py` has put beside the pages."""
    app.config.html_static_path.append(str(app.srcdir / "vendored"))
    app.config.html_extra_path.append(str(app.srcdir / "files"))
