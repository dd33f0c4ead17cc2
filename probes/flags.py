"""The launch flags that a version of an engine knows, read from its own source, which is never imported.

A flag is a string given to `add_argument`, or a field whose annotation says so: SGLang declares
`tp_size: A[int, Arg(help=..., aliases=["--tensor-parallel-size"])]` and means `--tp-size` and that alias.
"""

from __future__ import annotations

import ast
import os
import re
from typing import Dict, Iterator, List, Optional, Sequence, Set

from probes.reading import read_bytes

_FLAG = re.compile(r"--?[A-Za-z][\w-]*$")
LARGEST_SOURCE_BYTES = 8 << 20
MOST_SOURCES = 400


def known(root: str, sources: Sequence[str]) -> Set[str]:
    """The flags that the sources below `root` declare, files or whole folders; none where nothing can be read."""
    flags: Set[str] = set()
    for path in list(_files(root, sources))[:MOST_SOURCES]:
        try:
            module = ast.parse(read_bytes(path, LARGEST_SOURCE_BYTES))
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue
        for node in ast.walk(module):
            if isinstance(node, ast.Call):
                flags.update(_given(node))
            elif isinstance(node, ast.AnnAssign):
                flags.update(_declared(node))
    return flags


def spelled(flags: Set[str], names: Sequence[str]) -> Optional[str]:
    """The first of a setting's names that a parser with these flags takes, if only as an unambiguous beginning."""
    for name in names:
        plain = "--" + name[len("--no-") :] if name.startswith("--no-") else name  # a switch with two sides
        if plain in flags or (name.startswith("--") and sum(flag.startswith(name) for flag in flags) == 1):
            return name
    return None


def translated(argv: Sequence[str], flags: Set[str], names: Dict[str, List[str]]) -> List[str]:
    """A command line with the flags that are not known replaced by a known name of the same setting, if there is one.

    Args:
        argv: the command line.
        flags: what the version at hand knows.
        names: flag -> all names of its setting.
    """
    words: List[str] = []
    for word in argv:
        flag, mark, value = word.partition("=")
        words.append((spelled(flags, names[flag]) or flag) + mark + value if flag in names else word)
    return words


def _files(root: str, sources: Sequence[str]) -> Iterator[str]:
    for source in sources:
        place = os.path.join(root, source)
        if os.path.isdir(place):
            for folder, below, files in os.walk(place):
                below.sort()
                yield from (os.path.join(folder, name) for name in sorted(files) if name.endswith(".py"))
        elif os.path.isfile(place):
            yield place


def _given(call: ast.Call) -> Iterator[str]:
    """The flags among a call's first arguments: of `add_argument`, or of a helper that passes them on."""
    for argument in call.args:
        if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
            return
        if not _FLAG.match(argument.value):
            return
        yield argument.value


def _declared(field: ast.AnnAssign) -> Iterator[str]:
    """The flags of a field annotated with help text or a call that describes them."""
    annotation = field.annotation
    if not isinstance(field.target, ast.Name) or not isinstance(annotation, ast.Subscript):
        return
    base = annotation.value
    if (base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")) not in {"A", "Annotated"}:
        return
    said: Dict[str, ast.expr] = {}
    for node in ast.walk(annotation.slice):
        if isinstance(node, ast.Call):
            said.update({word.arg: word.value for word in node.keywords if word.arg})
    if _value(said.get("no_cli")) is True:
        return
    own = _value(said.get("cli_name"))
    yield own if isinstance(own, str) else "--" + field.target.id.replace("_", "-")
    aliases = said.get("aliases")
    for alias in aliases.elts if isinstance(aliases, (ast.List, ast.Tuple)) else []:
        value = _value(alias)
        if isinstance(value, str):
            yield value


def _value(node: Optional[ast.expr]) -> object:
    return node.value if isinstance(node, ast.Constant) else None
