"""`python -m fingerprint`."""

from fingerprint.cli import main

main()
