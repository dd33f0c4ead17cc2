"""How ranks talk to each other."""
