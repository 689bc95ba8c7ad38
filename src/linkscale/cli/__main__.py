"""``python -m linkscale.cli`` is ``linkscale``."""

from linkscale.cli import main

main()
