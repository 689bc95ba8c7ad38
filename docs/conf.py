"""Sphinx configuration; build with `make docs`, where warnings are errors."""

from linkscale import __version__

project = "Linkscale"
author = "The Linkscale authors"
copyright = author  # noqa: A001 - Sphinx's name for it
version = release = __version__

extensions = ["myst_parser"]
myst_enable_extensions = ["deflist", "dollarmath", "colon_fence"]
myst_heading_anchors = 3
nitpicky = True
exclude_patterns = ["_build", "evidence"]

html_theme = "furo"
html_title = f"Linkscale {__version__}"
html_show_sphinx = False
pygments_style = "friendly"
