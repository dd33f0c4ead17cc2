"""Code that every Python process of the server runs before its own first line, and what changes what it imports.

sitecustomize and usercustomize, `.pth` files, plugins that the engine loads by entry points, and modules that hide
installed ones.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any, Dict, List, Optional

from probes.interpreter import Interpreter, deduce, pth_files, pth_lines, runs_code
from probes.reading import Json, attempt, names_in, read_bytes, read_text
from probes.secrets import Keeper

_LARGEST_BYTES = 256 * 1024
_MOST_MODULES = 2000
_GROUPS = {
    "sglang.srt.plugins",
    "sglang.srt.platforms",
    "vllm.general_plugins",
    "vllm.platform_plugins",
    "torch.backends",
}
"""Groups of entry points that are loaded at every start and may replace any function of the engine."""


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
    return {
        "files": files,
        "shadowed": shadowed,
        "pyvenv": interpreter.pyvenv or {},
        "plugins": _plugins(interpreter),
        "hidden": _hidden(interpreter),
    }


def _plugins(interpreter: Interpreter) -> Dict[str, str]:
    """What installed distributions hook into the engine: `GROUP NAME` -> `module:function (distribution)`."""
    found: Dict[str, str] = {}
    for site in interpreter.path:
        if site in interpreter.library:
            continue
        for directory in names_in(site):
            if not directory.endswith((".dist-info", ".egg-info")):
                continue
            try:
                text = read_text(os.path.join(site, directory, "entry_points.txt"))
            except OSError:
                continue
            group = ""
            for line in text.splitlines():
                name, mark, value = line.partition("=")
                if line.startswith("["):
                    group = line.strip("[] ")
                elif mark and group in _GROUPS and not line.startswith(("#", ";")):
                    found.setdefault(f"{group} {name.strip()}", f"{value.strip()} ({directory.partition('-')[0]})")
    return dict(sorted(found.items()))


def _hidden(interpreter: Interpreter) -> Dict[str, List[str]]:
    """Installed modules that one in the working directory or on PYTHONPATH hides: where each lies, the winner first."""
    places = [place for place in interpreter.path if place not in interpreter.library]
    front = [
        place for place in places if place not in interpreter.sites and place in interpreter.script + interpreter.named
    ]
    hidden: Dict[str, List[str]] = {}
    for place in front:
        for name in _modules(place):
            behind = [site for site in interpreter.sites if _lies_in(site, name)]
            if behind and name not in hidden and name not in {"sitecustomize", "usercustomize"}:
                hidden[name] = [place, *behind]
    return dict(sorted(hidden.items()))


def _modules(place: str) -> List[str]:
    """The top-level modules in a directory."""
    found: List[str] = []
    for name in names_in(place)[:_MOST_MODULES]:
        if name.endswith(".py"):
            found.append(name[:-3])
        elif os.path.isfile(os.path.join(place, name, "__init__.py")):
            found.append(name)
    return found


def _lies_in(site: str, name: str) -> bool:
    return os.path.isfile(os.path.join(site, f"{name}.py")) or os.path.isdir(os.path.join(site, name))


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
        return {"path": path, "sha256": raw, "text": raw}
    text = raw.decode("utf-8", "replace")
    return {
        "path": path,
        "sha256": hashlib.sha256(raw).hexdigest(),
        "text": keeper.text(text),
        "runs_code": any(runs_code(line) for line in pth_lines(text)) if code is None else code,
    }
