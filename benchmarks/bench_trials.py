"""What it costs to prepare a trial: a large environment with one package switched, and a source tree with a patch.

The environment is made here of real bytes (`--mib`, `--files`), or named with `--site` (its site-packages; it is only
read). Each row is the keeper's own time from the plan to the started process, in the way that a bisect prepares its
launches; beside it what the plain tools need for the same in the same run: `cp -al` for the environment, `git worktree
add` for the tree. Rows are taken in turns.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fingerprint.bisect.run import send_objects
from fingerprint.factors import Evidence, LaunchPlan
from fingerprint.factors.hunks import hunks_of
from fingerprint.factors.packages import Package
from fingerprint.factors.plan import TreePlan
from fingerprint.host import HostProgram
from fingerprint.reference.wheel import Wheel, install
from fingerprint.targets.local import LocalTarget
from fingerprint.wheels import Wheels
from snapshots import Distribution, LocalFile

KERNEL = "bench-kernel"
KERNEL_FILES = 400
RUN = {"pattern": r"^(\d+) ms$", "ms": 1.0, "rate": False, "skip": 0, "timeout_s": 30.0}
IDENTITY = {"GIT_AUTHOR_NAME": "b", "GIT_AUTHOR_EMAIL": "b@example.org", "GIT_COMMITTER_NAME": "b",
            "GIT_COMMITTER_EMAIL": "b@example.org", "GIT_CONFIG_GLOBAL": os.devnull}  # fmt: skip


def kernel(version: str) -> Wheel:
    """A package of some hundred files; its large ones are added where it is built."""
    text = f"VERSION = {version!r}\n" * 200
    return Wheel(KERNEL, version, {f"bench_kernel/part{n}.py": f"{text}N = {n}\n" for n in range(KERNEL_FILES)})


def fill(site: Path, files: int, mib: int) -> None:
    """Files of random bytes below a folder, in folders of a hundred."""
    rng = random.Random(1)
    size = (mib << 20) // files
    for n in range(files):
        folder = site / f"filler{n // 1000}" / str(n // 100)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"m{n}.bin").write_bytes(rng.randbytes(size))


def git(tree: Path, *words: str) -> str:
    """What git answers in a tree."""
    variables = {**os.environ, **IDENTITY}
    return subprocess.run(["git", *words], cwd=tree, env=variables, check=True, capture_output=True, text=True).stdout


def made_tree(tree: Path, files: int, mib: int) -> tuple[str, str, str]:
    """A repository of text with two commits and a local change of several hunks; the commits and the patch."""
    tree.mkdir()
    rng = random.Random(2)
    lines = (mib << 20) // files // 64
    for n in range(files):
        path = tree / f"package{n // 100}" / f"m{n}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"value_{i} = {rng.getrandbits(160):040x}  # {n}\n" for i in range(lines)))
    git(tree, "init", "-q", "-b", "main")
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "one")
    old = git(tree, "rev-parse", "HEAD").strip()
    for n in range(0, files, 10):
        path = tree / f"package{n // 100}" / f"m{n}.py"
        path.write_text(path.read_text() + "more = 1\n")
    git(tree, "commit", "-q", "-a", "-m", "two")
    new = git(tree, "rev-parse", "HEAD").strip()
    target = tree / "package0" / "m1.py"
    rows = target.read_text().splitlines(keepends=True)
    for at in range(0, len(rows) - 20, max(20, len(rows) // 8)):
        rows[at] = f"changed = {at}\n"
    target.write_text("".join(rows))
    return old, new, git(tree, "diff", "--full-index", "HEAD")


class Bench:
    """Trials of a command that prints one number."""

    def __init__(self, host: HostProgram, prefix: Path, site: Path) -> None:
        self.host, self.prefix, self.site = host, prefix, site

    def prepared_s(self, apply: Callable[[LaunchPlan], None], isolation: str) -> float:
        """Seconds until the process of a trial is started."""
        plan = LaunchPlan(["/bin/sh", "-c", "echo 1 ms"], "/", {"PYTHONPATH": str(self.site)}, str(self.prefix))
        apply(plan)
        ask: dict[str, Any] = {**plan.to_json(), "run": RUN, "stop_s": 1.0, "isolation": isolation}
        answer = self.host.call("try", ask)
        if not answer["isolation"].startswith(isolation):
            sys.exit(f"this host allows no {isolation}: {answer['isolation']}")
        return float(answer["seconds"]["prepare"])


def timed(argv: list[str], after: Callable[[], None]) -> float:
    """Seconds of a command; what it made is removed outside of that time."""
    began = time.monotonic()
    subprocess.run(argv, check=True, capture_output=True)
    took = time.monotonic() - began
    after()
    return took


def main() -> None:
    """Make what is asked for, take all rows in turns, and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--site", type=Path, help="site-packages of an environment at hand, instead of a made one")
    parser.add_argument("--mib", type=int, default=2700, help="size of the environment that is made")
    parser.add_argument("--files", type=int, default=56_000)
    parser.add_argument("--kernel-mib", type=int, default=200, help="size of the package that is switched")
    parser.add_argument("--repeat", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-trials-") as folder, HostProgram(LocalTarget()) as host:
        root = Path(folder)
        site = asked.site or root / "venv" / "lib" / "python3" / "site-packages"
        prefix = root / "venv"
        if asked.site is not None:
            prefix = next(place for place in site.parents if (place / "pyvenv.cfg").exists())
        sides: dict[str, Distribution] = {}
        if asked.site is None:
            site.mkdir(parents=True)
            fill(site, asked.files, asked.mib)
        old_site = root / "old"
        old_site.mkdir()
        large = random.Random(3).randbytes(asked.kernel_mib << 20)
        for version, where in (("1.0", old_site), ("2.0", site if asked.site is None else root / "new")):
            where.mkdir(exist_ok=True)
            install(kernel(version).build(root / "wheels"), where)
            sides[version] = Distribution(version=version, location=str(site), record=None)
        record = old_site / "bench_kernel-1.0.dist-info" / "RECORD"
        (old_site / "bench_kernel" / "ops.so").write_bytes(large)
        digest = base64.urlsafe_b64encode(hashlib.sha256(large).digest()).rstrip(b"=").decode()
        record.write_text(record.read_text() + f"bench_kernel/ops.so,sha256={digest},{len(large)}\n")
        evidence = Evidence(wheels=Wheels([old_site]))
        files = evidence.wheels.files(KERNEL, sides["1.0"], None) if evidence.wheels else ()
        if isinstance(files, str):
            sys.exit(files)
        package = Package(f"package:{KERNEL}", "1.0", "2.0", KERNEL, sides["1.0"], sides["2.0"], files, sys.executable)
        host.call("prepare", {"pid": None, "trees": [], "prefixes": [], "bytes": 0})
        began = time.monotonic()
        send_objects(host, evidence, package.objects())
        sent_s = time.monotonic() - began
        tree = root / "tree"
        old, new, patch = made_tree(tree, 1600, 50)
        file = LocalFile(change="modified", patch=patch)

        def plan_of_tree(plan: LaunchPlan) -> TreePlan:
            return plan.trees.setdefault(str(tree), TreePlan(new, new, {"package0/m1.py": file}, {}))

        hunks = hunks_of("tree:m1", str(tree), "package0/m1.py", None, file, plan_of_tree)
        if isinstance(hunks, str):
            sys.exit(hunks)
        some = frozenset(part.id for part in hunks.parts[::2])

        def subset(plan: LaunchPlan) -> None:
            hunks.apply(plan, some)

        def older(plan: LaunchPlan) -> None:
            hunks.apply(plan, some)
            plan_of_tree(plan).commit = old

        bench = Bench(host, prefix, site)
        clone, worktree = root / "clone", root / "worktree"

        def drop_worktree() -> None:
            git(tree, "worktree", "remove", "--force", str(worktree))

        rows: dict[str, Callable[[], float]] = {
            "environment, package as it is, overlay": lambda: bench.prepared_s(
                lambda plan: package.apply(plan, new=True), "overlay"
            ),
            "environment, package switched, overlay": lambda: bench.prepared_s(
                lambda plan: package.apply(plan, new=False), "overlay"
            ),
            "environment, package switched, hard links": lambda: bench.prepared_s(
                lambda plan: package.apply(plan, new=False), "copies"
            ),
            "  cp -al of the environment": lambda: timed(
                ["cp", "-al", str(prefix), str(clone)], lambda: shutil.rmtree(clone)
            ),
            "tree, half of the hunks, overlay": lambda: bench.prepared_s(subset, "overlay"),
            "tree, other commit and half of the hunks, overlay": lambda: bench.prepared_s(older, "overlay"),
            "tree, other commit and half of the hunks, clone": lambda: bench.prepared_s(older, "copies"),
            "  git worktree add of the other commit": lambda: timed(
                ["git", "-C", str(tree), "worktree", "add", "--detach", str(worktree), old], drop_worktree
            ),
        }
        taken: dict[str, list[float]] = {name: [] for name in rows}
        for _ in range(asked.repeat):
            for name, row in rows.items():
                taken[name].append(row())
        many, mib = _size(prefix)
        print(f"environment {mib} MiB in {many} files; switched package {len(files)} files, {asked.kernel_mib} MiB, "
              f"sent once in {sent_s:.2f} s; tree 50 MiB in 1600 files, {len(hunks.parts)} hunks")  # fmt: skip
        print(f"{'':52s} {'median s':>9s} {'least s':>9s}")
        for name, seconds in taken.items():
            print(f"{name:52s} {statistics.median(seconds):9.3f} {min(seconds):9.3f}")


def _size(folder: Path) -> tuple[int, int]:
    sizes = [path.lstat().st_size for path in folder.rglob("*") if not path.is_dir()]
    return len(sizes), sum(sizes) >> 20


if __name__ == "__main__":
    main()
