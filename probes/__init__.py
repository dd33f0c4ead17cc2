"""Everything that runs on the measured host: standard library only, Python 3.9 or later.

The package travels as one zip over the standard input of one command; nothing is installed, written or left behind. It
never imports the stack it inspects and never imports `fingerprint` or `snapshots`. A module here is either a probe (one
section of a snapshot, `read(ask) -> dict`) or a part of the host program that runs probes and trials.
"""
