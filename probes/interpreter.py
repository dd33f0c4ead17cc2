"""The serving interpreter and its import path, deduced from files alone: nothing of it is ever run.

The same steps as CPython's own start: the executable as it was named (a virtual environment is told by the pyvenv.cfg
beside it), PYTHONPATH, the standard library, the user's site directory, site-packages, and the lines of `.pth` files.
"""

from __future__ import annotations

import ast
import os
import re
import threading
from typing import Any, Dict, List, NamedTuple, Optional

from probes.reading import Json, is_unread, names_in, read_bytes, read_text, unread

_ONCE = threading.Lock()
_BUILD = ("CONFIG_ARGS", "Py_DEBUG", "Py_GIL_DISABLED", "OPT", "PGO_PROF_USE_FLAG", "WITH_PYMALLOC")
_LITERAL = re.compile(r"\s*(?:\d+|(?:'[^'\n]*'\s*|\"[^\"\n]*\"\s*)+)")
_LARGEST_BINARY_BYTES = 64 << 20
_LARGEST_PTH_BYTES = 1 << 20


class Interpreter(NamedTuple):
    """One interpreter, and where it looks for modules. Paths are as its own process sees them."""

    executable: str
    prefix: str
    base_prefix: str
    version: Json
    """`3.11.7`, or unread."""
    script: List[str]
    """What a script or `-m` puts first: its directory, or the working directory."""
    named: List[str]
    """PYTHONPATH."""
    library: List[str]
    """The standard library."""
    sites: List[str]
    """Directories whose `.pth` files are read: the user's, then the system's."""
    added: Dict[str, List[str]]
    """`.pth` file -> directories that its lines add."""
    user_site: bool
    site: bool
    """Whether the site module runs at all."""
    pyvenv: Optional[Dict[str, str]]
    cwd: str

    @property
    def path(self) -> List[str]:
        """Every directory of sys.path, in order, without repetitions."""
        later = [place for places in self.added.values() for place in places]
        return list(dict.fromkeys([*self.script, *self.named, *self.library, *self.sites, *later]))

    @property
    def startup_path(self) -> List[str]:
        """Where sitecustomize is looked for: the script's directory is not on the path yet."""
        return [place for place in self.path if place not in self.script or place in self.named]


def deduce(context: Dict[str, Any]) -> Json:
    """The serving interpreter (`Interpreter`), or a section that says why there is none; worked out once a capture.

    It is the one named by `ask["python"]` or `ask["venv"]`, else that of the live server's launcher.
    """
    with _ONCE:
        if "interpreter" not in context:
            context["interpreter"] = _deduce(context)
    found = context["interpreter"]
    return found if isinstance(found, Interpreter) else dict(found)


def _deduce(context: Dict[str, Any]) -> Json:
    ask, serving = context["ask"], context.get("serving") or {}
    named = ask.get("venv") or ask.get("python")
    if serving.get("elsewhere"):
        if not named:
            return {"status": "failed", "reason": serving["elsewhere"]}
        serving = {}
    server = context.get("server") or {}
    status, reason = server.get("status", "absent"), server.get("reason") or "no server runs here"
    variables: Dict[str, str] = serving.get("variables") or {}
    if is_unread(variables):
        variables = {}
    argv: List[str] = list(serving.get("argv") or [])
    cwd = serving["cwd"] if isinstance(serving.get("cwd"), str) else os.getcwd()
    if ask.get("venv"):
        executable = os.path.join(ask["venv"], "bin", "python")
    elif ask.get("python"):
        executable = ask["python"]
    elif argv:
        executable = _named(argv[0], cwd, variables, serving.get("executable"))
    else:
        return {"status": status, "reason": f"{reason}, and no interpreter was named"}
    if not serving:
        argv = [executable]
        variables = dict(os.environ)
    executable = os.path.abspath(executable)
    try:
        os.stat(executable)
    except OSError as error:
        return {"status": "failed", "reason": unread(error)["unread"]}
    return _read(executable, argv, variables, cwd)


def _named(word: str, cwd: str, variables: Dict[str, str], running: Json) -> str:
    """The executable as its own process understands argv[0]."""
    found = word
    if "/" in word:
        found = os.path.join(cwd, word)
    else:
        for place in variables.get("PATH", "/usr/local/bin:/usr/bin:/bin").split(":"):
            if os.access(os.path.join(cwd, place, word), os.X_OK):
                found = os.path.join(cwd, place, word)
                break
    if os.path.basename(found).startswith("python") and os.path.isfile(found):
        return found
    return running if isinstance(running, str) else found


def _read(executable: str, argv: List[str], variables: Dict[str, str], cwd: str) -> Interpreter:
    pyvenv = None
    prefix = os.path.dirname(os.path.dirname(executable))
    for place in (os.path.dirname(executable), prefix):
        try:
            pyvenv = _pyvenv(read_text(os.path.join(place, "pyvenv.cfg")))
            prefix = place
            break
        except OSError:
            continue
    real = os.path.realpath(executable)
    base_prefix = os.path.dirname(os.path.dirname(real))
    if pyvenv is None:
        prefix = base_prefix
    elif pyvenv.get("home"):
        base_prefix = _base_of(pyvenv["home"])
    short = _short_version(prefix, base_prefix, real, pyvenv)
    switches = _switches(argv)
    isolated = "I" in switches
    site = "S" not in switches
    named: List[str] = []
    if not isolated and "E" not in switches and variables.get("PYTHONPATH"):
        named = [os.path.abspath(os.path.join(cwd, place)) for place in variables["PYTHONPATH"].split(":")]
    script: List[str] = []
    if not isolated and "P" not in switches and not variables.get("PYTHONSAFEPATH"):
        script = _script_directory(argv, cwd)
    library = [f"{base_prefix}/lib/python{short}", f"{base_prefix}/lib/python{short}/lib-dynload"]
    system = pyvenv is None or pyvenv.get("include-system-site-packages", "").lower() == "true"
    user_site = site and system and not isolated and "s" not in switches and not variables.get("PYTHONNOUSERSITE")
    sites: List[str] = []
    if user_site:
        base = variables.get("PYTHONUSERBASE") or os.path.join(variables.get("HOME", "/root"), ".local")
        sites.append(f"{base}/lib/python{short}/site-packages")
    if site:
        for place in dict.fromkeys([prefix, *([base_prefix] if system else [])]):
            sites += _site_directories(place, short)
    sites = _existing(sites)
    return Interpreter(
        executable=executable,
        prefix=prefix,
        base_prefix=base_prefix,
        version=_full_version(real, base_prefix, short, pyvenv),
        script=_existing(script),
        named=_existing(named),
        library=_existing(library),
        sites=sites,
        added=_pth_directories(sites),
        user_site=user_site,
        site=site,
        pyvenv=pyvenv,
        cwd=cwd,
    )


def _site_directories(prefix: str, short: str) -> List[str]:
    if prefix == "/usr":  # Debian's interpreter
        return [
            f"/usr/local/lib/python{short}/dist-packages",
            "/usr/lib/python3/dist-packages",
            f"/usr/lib/python{short}/dist-packages",
            f"/usr/lib/python{short}/site-packages",
            f"/usr/lib64/python{short}/site-packages",
        ]
    return [f"{prefix}/{lib}/python{short}/site-packages" for lib in ("lib", "lib64")]


def _existing(places: List[str]) -> List[str]:
    """Directories that exist, each once, also when two names lead to it (lib64 -> lib)."""
    found: Dict[str, str] = {}
    for place in places:
        if os.path.isdir(place):
            found.setdefault(os.path.realpath(place), place)
    return list(found.values())


def _base_of(home: str) -> str:
    """The prefix behind a `home`; Python 3.10 writes an environment's own folder there when it was made from one."""
    for _ in range(8):
        prefix = os.path.dirname(os.path.realpath(os.path.join(home, ".")))
        try:
            home = _pyvenv(read_text(os.path.join(prefix, "pyvenv.cfg"))).get("home", "")
        except OSError:
            return prefix
        if not home:
            return prefix
    return prefix


def _pyvenv(text: str) -> Dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _switches(argv: List[str]) -> str:
    """The interpreter's own one-letter switches."""
    letters = ""
    skip = False
    for word in argv[1:]:
        if skip:
            skip = False
        elif word.startswith("-") and not word.startswith("--") and len(word) > 1:
            for number, letter in enumerate(word[1:]):
                if letter in "mc":
                    return letters
                if letter in "WX":
                    skip = number == len(word) - 2
                    break
                letters += letter
        else:
            break
    return letters


def _script_directory(argv: List[str], cwd: str) -> List[str]:
    skip = False
    for word in argv[1:]:
        if skip:
            skip = False
        elif word in {"-W", "-X"}:
            skip = True
        elif word.startswith("-"):
            if "m" in word.lstrip("-") or "c" in word.lstrip("-"):
                return [cwd]
        else:
            return [os.path.dirname(os.path.realpath(os.path.join(cwd, word)))]
    return []


def _short_version(prefix: str, base_prefix: str, real: str, pyvenv: Optional[Dict[str, str]]) -> str:
    told = (pyvenv or {}).get("version_info") or (pyvenv or {}).get("version") or ""
    for text in (os.path.basename(real), told):
        match = re.search(r"(3\.\d+)", text)
        if match:
            return match[1]
    for place in (prefix, base_prefix):
        names = [name for name in names_in(f"{place}/lib") if re.fullmatch(r"python3\.\d+", name)]
        if names:
            return names[-1][len("python") :]
    return "3"


def _full_version(real: str, base_prefix: str, short: str, pyvenv: Optional[Dict[str, str]]) -> Json:
    """The version by its headers, else as compiled in; pyvenv.cfg says what it was when the environment was made."""
    try:
        header = read_text(f"{base_prefix}/include/python{short}/patchlevel.h")
    except OSError:
        header = ""
    written = re.search(r'#define\s+PY_VERSION\s+"([^"]+)"', header)
    if written:
        return written[1]
    start = b"\0" + short.encode() + b"."
    whole = re.compile(rb"\0(3\.\d+\.\d+[0-9abrc+]*)\0")
    for binary in (f"{base_prefix}/lib/libpython{short}.so.1.0", real):
        try:
            blob = read_bytes(binary, _LARGEST_BINARY_BYTES)
        except OSError:
            continue
        at = blob.find(start)
        while at >= 0:
            found = whole.match(blob, at)
            if found:
                return found[1].decode()
            at = blob.find(start, at + 1)
    told = (pyvenv or {}).get("version_info") or (pyvenv or {}).get("version")
    return told or unread(f"no version is written in {real}")


def build(interpreter: Interpreter) -> Dict[str, str]:
    """How the interpreter was built, as far as it touches speed; from the data file of its standard library."""
    found: Dict[str, str] = {}
    for library in interpreter.library:
        names = [name for name in names_in(library) if re.fullmatch(r"_sysconfigdata_[\w-]*\.py", name)]
        try:
            text = read_text(os.path.join(library, names[0]), 1 << 20) if names else ""
        except OSError:
            continue
        for name in _BUILD:
            at = text.find(f"'{name}':")
            value = _LITERAL.match(text, at + len(name) + 3) if at >= 0 else None
            if value:
                found[name] = str(ast.literal_eval(f"({value[0].strip()})"))
    if "CONFIG_ARGS" in found:  # without where it was built
        words = found["CONFIG_ARGS"].replace("'", "").split()
        found["CONFIG_ARGS"] = " ".join(sorted(word for word in words if word.startswith("--") and "/" not in word))
    return found


def pth_files(site: str) -> List[str]:
    """The `.pth` files of a site directory, in the order in which Python reads them; hidden ones are skipped."""
    names = [name for name in names_in(site) if name.endswith(".pth") and not name.startswith(".")]
    return [os.path.join(site, name) for name in names]


def pth_lines(text: str) -> List[str]:
    """The lines of a `.pth` file that mean something."""
    return [line.rstrip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def runs_code(line: str) -> bool:
    """Whether a `.pth` line is executed rather than added to the path."""
    return line.startswith(("import ", "import\t"))


def _pth_directories(sites: List[str]) -> Dict[str, List[str]]:
    added: Dict[str, List[str]] = {}
    for site in sites:
        for path in pth_files(site):
            try:
                lines = pth_lines(read_text(path, _LARGEST_PTH_BYTES))
            except OSError:
                continue
            places = [os.path.abspath(os.path.join(site, line)) for line in lines if not runs_code(line)]
            places = [place for place in places if os.path.isdir(place)]
            if places:
                added[path] = places
    return added
