"""``python -m linkscale.cli`` is ``linkscale``."""

from linkscale.cli.app import main

main()
