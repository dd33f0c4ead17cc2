"""The target and its draft."""
