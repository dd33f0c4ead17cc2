"""The embedded EAGLE3 server, and worlds in which it became slower."""
