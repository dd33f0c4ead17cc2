"""tinyserve: a small EAGLE3 server on CPU cores, laid out as SGLang is."""

__version__ = "0.5.23"
