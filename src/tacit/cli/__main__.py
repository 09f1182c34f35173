"""`python -m tacit.cli` is `tacit`."""

from tacit.cli import main

main()
