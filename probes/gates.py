"""Which environment variables a change depends on, read from the source without running it.

A hunk is gated by a variable when its lines, the conditions around them, or a guard before them (`if not FLAG: return`)
read it: directly, or through a name that was assigned from it elsewhere in the file.
"""

from __future__ import annotations

import ast
import re
from typing import Dict, Iterator, List, Optional, Set

_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{2,}$")
_HUNK = re.compile(r"^@@ -\d+(?:,\d+)? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)
_LARGEST_SOURCE = 2 << 20


def gates(source: str, patch: str) -> Dict[str, List[str]]:
    """Number of a hunk (from 1) -> variables; hunks that depend on none are left out.

    Args:
        source: the file as it is, Python.
        patch: its unified difference; without any hunk the whole file counts as one.
    """
    if len(source) > _LARGEST_SOURCE:
        return {}
    try:
        module = ast.parse(source)
        reader = _Reader(module)
        found: Dict[str, List[str]] = {}
        hunks = _changed_lines(patch)
        for number, lines in enumerate(hunks or [set(range(1, source.count("\n") + 2))], 1):
            names = reader.around(lines)
            if names:
                found[str(number)] = sorted(names)
        return found
    except (SyntaxError, ValueError, RecursionError):
        return {}


def _changed_lines(patch: str) -> List[Set[int]]:
    """For every hunk the line numbers in the new file that it adds, or beside which it removes."""
    hunks: List[Set[int]] = []
    at = 0
    for line in patch.splitlines():
        start = _HUNK.match(line)
        if start:
            at = int(start[1])
            hunks.append(set())
        elif hunks:
            if line.startswith(("+", "-")):
                hunks[-1].add(at)
            at += line.startswith(("+", " "))
    return hunks


class _Reader:
    """The variables that the parts of one file read."""

    def __init__(self, module: ast.Module) -> None:
        self._module = module
        self._names: Dict[str, Set[str]] = {}
        for node in ast.walk(module):
            targets: List[ast.expr] = []
            value: Optional[ast.expr] = None
            if isinstance(node, ast.Assign):
                targets, value = node.targets, node.value
            elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
                targets, value = [node.target], node.value
            variables = self.read_by(value) if value is not None else set()
            for target in targets if variables else []:
                name = _name(target)
                if name:
                    self._names.setdefault(name, set()).update(variables)

    def read_by(self, node: ast.AST) -> Set[str]:
        """The variables that an expression reads, itself or through a name."""
        found: Set[str] = set()
        for part in ast.walk(node):
            if isinstance(part, ast.Call) and "env" in _called(part).lower():
                found.update(_literal(argument) for argument in part.args[:1])
            elif isinstance(part, ast.Subscript) and _name(part.value) == "environ":
                found.add(_literal(part.slice))
            elif isinstance(part, ast.Compare) and any(_name(other) == "environ" for other in part.comparators):
                found.add(_literal(part.left))
            elif isinstance(part, ast.Attribute) and _name(part.value) == "envs" and _VARIABLE.match(part.attr):
                found.add(part.attr)
            if isinstance(part, (ast.Name, ast.Attribute)) and isinstance(part.ctx, ast.Load):
                found.update(self._names.get(_name(part), set()))
        return {name for name in found if _VARIABLE.match(name)}

    def around(self, lines: Set[int]) -> Set[str]:
        """The variables on which lines depend."""
        return set(self._block(self._module.body, lines))

    def _block(self, body: List[ast.stmt], lines: Set[int]) -> Iterator[str]:
        guards: Set[str] = set()
        for statement in body:
            if _touches(statement, lines):
                yield from guards
                yield from self._inside(statement, lines)
            if isinstance(statement, ast.If) and _leaves(statement.body):
                guards |= self.read_by(statement.test)

    def _inside(self, statement: ast.stmt, lines: Set[int]) -> Iterator[str]:
        blocks = [part for _, part in ast.iter_fields(statement) if _is_block(part)]
        handlers = getattr(statement, "handlers", [])
        blocks += [handler.body for handler in handlers]
        if not blocks:
            yield from self.read_by(statement)
            return
        if isinstance(statement, (ast.If, ast.While)):
            yield from self.read_by(statement.test)
        for block in blocks:
            yield from self._block(block, lines)


def _is_block(part: object) -> bool:
    return isinstance(part, list) and bool(part) and isinstance(part[0], ast.stmt)


def _touches(statement: ast.stmt, lines: Set[int]) -> bool:
    first = min([statement.lineno, *(node.lineno for node in getattr(statement, "decorator_list", []))])
    return any(first <= line <= (statement.end_lineno or first) for line in lines)


def _leaves(body: List[ast.stmt]) -> bool:
    return isinstance(body[-1], (ast.Return, ast.Raise, ast.Continue, ast.Break))


def _name(node: ast.AST) -> str:
    """The last part of a name: `environ` of `os.environ`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _called(node: ast.Call) -> str:
    """The words of the called name: `os.environ.get`."""
    words: List[str] = []
    part: ast.AST = node.func
    while isinstance(part, ast.Attribute):
        words.append(part.attr)
        part = part.value
    return ".".join([_name(part), *reversed(words)])


def _literal(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
