"""Code that every Python process of the server runs before its own first line: sitecustomize, usercustomize, `.pth`."""

from __future__ import annotations

import hashlib
import os
from typing import Any, Dict, List, Optional

from probes.interpreter import Interpreter, deduce, pth_files, pth_lines, runs_code
from probes.reading import Json, attempt, read_bytes
from probes.secrets import Keeper

_LARGEST_BYTES = 256 * 1024


def read(context: Dict[str, Any]) -> Json:
    """The startup section."""
    keeper = context["keeper"]
    interpreter = deduce(context)
    if not isinstance(interpreter, Interpreter):
        return interpreter
    files: Dict[str, Json] = {}
    shadowed: Dict[str, List[str]] = {}
    modules = (["sitecustomize"] if interpreter.site else []) + (["usercustomize"] if interpreter.user_site else [])
    for module in modules:
        hits = [path for path in (_module(place, module) for place in interpreter.startup_path) if path]
        if hits:
            files[f"{module}.py"] = _file(hits[0], keeper, code=True)
            if hits[1:]:
                shadowed[f"{module}.py"] = hits[1:]
    for site in interpreter.sites:
        for path in pth_files(site):
            name = os.path.basename(path)
            # Two of one name in two site directories both run.
            files[name if name not in files else path] = _file(path, keeper, code=None)
    return {"files": files, "shadowed": shadowed, "pyvenv": interpreter.pyvenv or {}}


def _module(place: str, module: str) -> Optional[str]:
    """The file that importing `module` from one directory would run."""
    package = os.path.join(place, module, "__init__.py")
    if os.path.isfile(package):
        return package
    plain = os.path.join(place, f"{module}.py")
    return plain if os.path.isfile(plain) else None


def _file(path: str, keeper: Keeper, *, code: Optional[bool]) -> Json:
    raw = attempt(lambda: read_bytes(path, _LARGEST_BYTES))
    if not isinstance(raw, bytes):
        return {"path": path, "sha256": "", "text": raw}
    text = raw.decode("utf-8", "replace")
    return {
        "path": path,
        "sha256": hashlib.sha256(raw).hexdigest(),
        "text": keeper.text(text),
        "runs_code": any(runs_code(line) for line in pth_lines(text)) if code is None else code,
    }
