"""Pictures of a case as static SVG: no script, no request; readable in print, in dark mode and by a screen reader.

Every picture carries a title and a sentence that says what it shows, marks differ in shape or dash as well as in
colour, and each mark tells its value on hover through its own `<title>`. Inside a page the colours are the page's
variables; as a file of its own a picture brings them along.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from fingerprint.report.words import clean, count, ms, number, percent, percent_interval, probability
from fingerprint.speed import tokens_per_second

if TYPE_CHECKING:
    from fingerprint.report.model import Board, Launch, Report

WIDTH = 760
_LEFT, _RIGHT, _TOP = 64, 24, 44
_FAR = 1e5
_ARMS = {"old": "everything old", "mixed": "some new, some old", "new": "everything new"}


@dataclass(frozen=True)
class Picture:
    """One drawing.

    Attributes:
        name: file name without its ending.
        title: what it shows.
        summary: its message in words, for those who cannot see it.
        height: of the view box, whose width is `WIDTH`.
        body: SVG elements.
    """

    name: str
    title: str
    summary: str
    height: float
    body: Markup

    def inline(self) -> Markup:
        """For a page that has the colours."""
        return self._svg(Markup(""))

    def file(self) -> str:
        """A file of its own, with its colours."""
        css = files("fingerprint.report").joinpath("colors.css").read_text(encoding="utf-8")
        return str(self._svg(Markup("<style>{}</style>").format(Markup(css)))) + "\n"  # noqa: S704 - our own file

    def _svg(self, head: Markup) -> Markup:
        return Markup(
            '<svg xmlns="http://www.w3.org/2000/svg" class="chart" role="img" viewBox="0 0 {w} {h}" '
            'aria-labelledby="{n}-title {n}-desc"><title id="{n}-title">{t}</title><desc id="{n}-desc">{d}</desc>'
            '{head}<rect class="surface" width="{w}" height="{h}"/>{body}</svg>'
        ).format(w=WIDTH, h=_n(self.height), n=self.name, t=self.title, d=self.summary, head=head, body=self.body)


def pictures(report: Report) -> list[Picture]:
    """The pictures for which the case has data, in reading order."""
    made = (_launches(report), _waterfall(report), _posterior(report), _budget(report), _break_even(report))
    return [picture for picture in (*made, _topology(report), _watch(report)) if picture is not None]


# -- drawing -----------------------------------------------------------------------------------------------------


def _n(value: float) -> str:
    """A coordinate; one that no sheet has is far outside of it."""
    within = min(max(value, -_FAR), _FAR) if value == value else -_FAR
    return f"{within:.1f}".removesuffix(".0")


@dataclass
class _Canvas:
    parts: list[Markup] = field(default_factory=list)

    def add(self, tag: str, text: str | Markup = "", hint: str = "", **attributes: float | str) -> None:
        """One element; underscores in attribute names are hyphens, `kind` is the class, `hint` shows on hover."""
        named = Markup("").join(
            Markup(' {}="{}"').format(
                "class" if name == "kind" else name.replace("_", "-"), value if isinstance(value, str) else _n(value)
            )
            for name, value in attributes.items()
        )
        inner = Markup("<title>{}</title>").format(hint) if hint else Markup("")
        self.parts.append(Markup("<{0}{1}>{2}{3}</{0}>").format(Markup(tag), named, inner, escape(text)))  # noqa: S704

    def text(self, x: float, y: float, words: str, kind: str = "label", anchor: str = "start", hint: str = "") -> None:
        """Words at a place; `y` is the baseline."""
        self.add("text", words, hint, x=x, y=y, kind=kind, text_anchor=anchor)

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        """A straight line."""
        self.add("line", x1=x1, y1=y1, x2=x2, y2=y2, kind=kind)

    def rect(self, x: float, y: float, width: float, height: float, kind: str, hint: str = "") -> None:
        """A rectangle."""
        self.add("rect", "", hint, x=x, y=y, width=max(width, 0.0), height=max(height, 0.0), kind=kind)

    def mark(self, arm: str, x: float, y: float, hint: str = "", size: float = 5.5) -> None:
        """A launch: circle for old, square for new, diamond for mixed, cross for one without a figure."""
        if arm == "old":
            self.add("circle", "", hint, cx=x, cy=y, r=size, kind="mark old")
        elif arm == "new":
            self.add("rect", "", hint, x=x - size, y=y - size, width=2 * size, height=2 * size, rx=1, kind="mark new")
        elif arm == "mixed":
            reach = size * 1.35
            path = f"M{_n(x)} {_n(y - reach)}L{_n(x + reach)} {_n(y)}L{_n(x)} {_n(y + reach)}L{_n(x - reach)} {_n(y)}Z"
            self.add("path", "", hint, d=path, kind="mark mixed")
        else:
            path = f"M{_n(x - 4)} {_n(y - 4)}l8 8m0 -8l-8 8"
            self.add("path", "", hint, d=path, kind="cross")

    def body(self) -> Markup:
        """Everything drawn."""
        return Markup("\n").join(self.parts)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round values between two bounds."""
    span = high - low
    if not (math.isfinite(span) and span > 0):
        return [low]
    rough = max(span / about, 1e-300)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def _scale(low: float, high: float, start: float, stop: float) -> Callable[[float], float]:
    span = (high - low) or 1.0
    return lambda value: start + (value - low) / span * (stop - start)


def _axis(canvas: _Canvas, low: float, high: float, place: Callable[[float], float], right: float, unit: str) -> None:
    """Horizontal grid lines with their values on the left."""
    for value in ticks(low, high):
        y = place(value)
        canvas.line(_LEFT, y, right, y, "grid")
        canvas.text(_LEFT - 8, y + 4, _short(value), "tick", "end")
    canvas.text(_LEFT - 8, _TOP - 14, unit, "tick", "end")


def _short(value: float) -> str:
    text = f"{value:.6g}"
    return text if "e" not in text else f"{value:.0f}"


def _legend(canvas: _Canvas, entries: Iterable[tuple[str, str]], y: float = 20) -> None:
    x = float(_LEFT)
    for arm, words in entries:
        canvas.mark(arm, x + 6, y - 4)
        canvas.text(x + 18, y, words, "label")
        x += 36 + 6.6 * len(words)


def _brief(name: str) -> str:
    """A name for little room: of a changed file without its directories."""
    return re.sub(r"the local change of (?:\S*/)?", "", name)


def _width(words: str, size: float) -> float:
    """About how wide words are; capitals and digits are wider than the rest."""
    return size * sum(0.7 if letter.isupper() else 0.62 if letter.isdigit() else 0.56 for letter in words)


def _fit(words: str, width: float, size: float = 12) -> str:
    """Words that fit into a width; else without their middle: names differ at their ends."""
    shown = words
    room = len(words)
    while room > 4 and _width(shown, size) > width:
        room -= 1
        end = room // 2
        shown = f"{words[: room - 1 - end]}…{words[-end:]}"
    return shown


# -- the pictures ------------------------------------------------------------------------------------------------


def _launches(report: Report) -> Picture | None:
    """Launches as points in time; drift would show as a slope, a bad launch as a stray."""
    shown = [launch for launch in report.launches if launch.value_ms is not None and launch.status == "measured"]
    if len(shown) < 2:
        return None
    height, bottom = 330.0, 270.0
    right = WIDTH - _RIGHT - 96
    values = [launch.value_ms for launch in shown if launch.value_ms is not None]
    levels = [
        (value, words, kind)
        for value, words, kind in (
            (report.then_old_ms, "old, in the past", "then old"),
            (report.then_new_ms, "new, in the past", "then new"),
        )
        if value is not None
    ]
    low, high = min([*values, *(v for v, _, _ in levels)]), max([*values, *(v for v, _, _ in levels)])
    pad = 0.12 * ((high - low) or 0.1 * high or 1.0)
    low, high = max(0.0, low - pad), high + pad
    place = _scale(low, high, bottom, _TOP)
    last = max(report.launches[-1].minutes, 1e-3)
    across = _scale(0.0, last, _LEFT + 16, right - 16)
    canvas = _Canvas()
    _axis(canvas, low, high, place, right, "ms")
    for interval, kind in ((report.old_ms, "band old"), (report.new_ms, "band new")):
        if interval is not None:
            top, base = place(interval[2]), place(interval[0])
            canvas.rect(_LEFT, top, right - _LEFT, max(base - top, 1.5), kind)
    ends: list[tuple[float, str, str]] = []
    if report.old_ms is not None:
        words, kind = ("today", "label") if report.old_ms == report.new_ms else ("old, today", "label old-ink")
        ends.append((place(report.old_ms[1]), words, kind))
    if report.new_ms is not None and report.new_ms != report.old_ms:
        ends.append((place(report.new_ms[1]), "new, today", "label new-ink"))
    for value, words, kind in levels:
        canvas.line(_LEFT, place(value), right, place(value), kind)
        ends.append((place(value), words, "label muted"))
    for y, words, kind in _apart(ends, 15, _TOP, bottom):
        canvas.text(right + 8, y + 4, words, kind)
    lost = [launch for launch in report.launches if launch not in shown]
    for launch in shown:
        x, y = across(launch.minutes), place(launch.value_ms or 0.0)
        hint = f"launch {launch.number}, {launch.setting}: {ms(launch.value_ms or 0.0, report.decimals)}"
        canvas.mark(launch.arm, x, y, hint)
        if len(report.launches) <= 40:
            canvas.text(x, y - 11, str(launch.number), "tiny", "middle")
    for launch in lost:
        hint = f"launch {launch.number}, {launch.setting}: {launch.status}: {launch.reason}"
        canvas.mark("cross", across(launch.minutes), bottom - 8, hint)
    canvas.line(_LEFT, bottom, right, bottom, "axis")
    unit, factor = ("minutes", 1.0) if last >= 3 else ("seconds", 60.0)
    for value in ticks(0.0, last * factor, 7):
        canvas.text(across(value / factor), bottom + 18, _short(value), "tick", "middle")
    canvas.text((_LEFT + right) / 2, bottom + 38, f"{unit} since the first launch", "tick", "middle")
    arms = [(arm, words) for arm, words in _ARMS.items() if any(launch.arm == arm for launch in shown)]
    _legend(canvas, [*arms, *([("cross", "no figure")] if lost else [])])
    by_arm = "; ".join(
        f"{words}: {len(group)} {_span(group, report.decimals)}"
        for arm, words in arms
        if (group := [launch.value_ms for launch in shown if launch.arm == arm and launch.value_ms is not None])
    )
    return Picture("launches", "Launches over time, by setting", f"{by_arm}.", height, canvas.body())


def _span(values: Sequence[float], decimals: int) -> str:
    low, high = ms(min(values), decimals), ms(max(values), decimals)
    return f"at {low}" if low == high else f"from {low} to {high}"


def _apart(ends: Sequence[tuple[float, str, str]], gap: float, low: float, high: float) -> list[tuple[float, str, str]]:
    """Labels moved apart until none covers another."""
    out: list[tuple[float, str, str]] = []
    for y, words, kind in sorted(ends):
        out.append((max(y, out[-1][0] + gap) if out else max(y, low), words, kind))
    limit = high
    for place in range(len(out) - 1, -1, -1):
        y, words, kind = out[place]
        out[place] = (min(y, limit), words, kind)
        limit = out[place][0] - gap
    return out


def _waterfall(report: Report) -> Picture | None:
    """From the old level to the new one: what each culprit adds, and what is left over."""
    old, new, gap = report.old_ms, report.new_ms, report.gap_ms
    if not report.shares or old is None or new is None or gap is None:
        return None
    parallel = len(report.shares) > 1 and all(share.share[1] > 0.75 for share in report.shares)
    rows: list[tuple[str, float, float, tuple[float, float] | None, str, str]] = []
    at = old[1]
    rows.append(("everything old", old[1], old[1], (old[0], old[2]), "old", ms(old[1], report.decimals)))
    for share in report.shares:
        start = old[1] if parallel else at
        stop = start + share.part_ms[1]
        ends = sorted((start + share.part_ms[0], start + share.part_ms[2]))
        rows.append((share.title, start, stop, (ends[0], ends[1]), "part", percent_interval(share.share)))
        at = stop
    if report.remainder_ms is not None and report.remainder_ms[0] < report.remainder_ms[2] and not parallel:
        low, mid, high = report.remainder_ms
        whole = gap[1] or 1.0
        rows.append(("not explained", at, at + mid, (at + low, at + high), "rest", percent(mid / whole)))
    rows.append(("everything new", new[1], new[1], (new[0], new[2]), "new", ms(new[1], report.decimals)))
    edges = [edge for _, start, stop, whisker, _, _ in rows for edge in (start, stop, *(whisker or ()))]
    low, high = min(edges), max(edges)
    pad = 0.08 * ((high - low) or 1.0)
    left, right = 230.0, WIDTH - 130.0
    across = _scale(low - pad, high + pad, left, right)
    canvas = _Canvas()
    top, step = 10.0, 40.0
    bottom = top + step * len(rows)
    for value in ticks(low - pad, high + pad, 6):
        canvas.line(across(value), top - 6, across(value), bottom, "grid")
        canvas.text(across(value), bottom + 18, _short(value), "tick", "middle")
    for row, (name, start, stop, whisker, kind, words) in enumerate(rows):
        y = top + row * step + step / 2
        canvas.text(left - 12, y + 4, _fit(_brief(name), left - 24), "label", "end", hint=name)
        if whisker is not None:
            canvas.line(across(whisker[0]), y, across(whisker[1]), y, "whisker")
        if kind in {"old", "new"}:
            canvas.mark(kind, across(start), y, f"{name}: {words}")
        else:
            x1, x2 = sorted((across(start), across(stop)))
            canvas.rect(x1, y - 9, max(x2 - x1, 2.0), 18, f"bar {kind}", f"{name}: {words}")
            for edge in whisker or ():
                canvas.line(across(edge), y - 5, across(edge), y + 5, "whisker")
            canvas.line(*((across(whisker[0]), y, across(whisker[1]), y) if whisker else (x1, y, x2, y)), "whisker")
        canvas.text(right + 8, y + 4, words, "label")
    canvas.text(
        (left + right) / 2, bottom + 38, "ms; the axis does not begin at 0; whiskers are 90 %", "tick", "middle"
    )
    title = "What makes up the gap"
    summary = "; ".join(f"{share.title}: {percent_interval(share.share)}" for share in report.shares)
    return Picture("shares", title, f"{summary}.", bottom + 52, canvas.body())


def _posterior(report: Report) -> Picture | None:
    """How probable each explanation was after each launch."""
    moments = report.moments
    if len(moments) < 2:
        return None
    height, bottom, top = 292.0, 234.0, 16.0
    right = WIDTH - 250.0
    first, last = moments[0].launch, moments[-1].launch
    across = _scale(first, last, _LEFT + 8, right)
    place = _scale(0.0, 1.0, bottom, top)
    canvas = _Canvas()
    for value in (0.0, 0.25, 0.5, 0.75, 1.0):
        canvas.line(_LEFT, place(value), right, place(value), "grid")
        canvas.text(_LEFT - 8, place(value) + 4, percent(value), "tick", "end")
    for value in ticks(first, last, 10):
        if value == int(value):
            canvas.text(across(value), bottom + 18, str(int(value)), "tick", "middle")
    canvas.text((_LEFT + right) / 2, bottom + 38, "after launch", "tick", "middle")
    ends: list[tuple[float, str, str]] = []
    names = list(moments[-1].probabilities)
    for index, name in enumerate(names):
        points = " ".join(f"{_n(across(one.launch))},{_n(place(one.probabilities[name]))}" for one in moments)
        canvas.add("polyline", "", name, points=points, kind=f"series s{index}")
        final = moments[-1].probabilities[name]
        canvas.add("circle", "", "", cx=across(last), cy=place(final), r=4, kind=f"dot f{index}")
        ends.append((place(final), _fit(f"{_brief(name)} {probability(final)}", 232), str(index)))
    for y, words, kind in _apart(ends, 16, top, bottom):
        canvas.line(right + 10, y, right + 24, y, f"series s{kind}")
        canvas.text(right + 30, y + 4, _fit(words, WIDTH - right - 36), "label")
    leader = max(names, key=lambda name: moments[-1].probabilities[name])
    certain = probability(moments[-1].probabilities[leader])
    return Picture(
        "posterior",
        "How probable each explanation was after each launch",
        f"After launch {last}: {leader}, {certain}.",
        height,
        canvas.body(),
    )


_PART_KINDS = ("verify", "draft", "extend", "host")


def _budget(report: Report) -> Picture | None:
    """Where the time of a cycle goes, on either side."""
    sides = [
        (side, arm, [(row.part, value) for row in report.budget if (value := getattr(row, f"{arm}_ms")) is not None])
        for side, arm in (("everything old", "old"), ("everything new", "new"))
    ]
    sides = [(side, arm, parts) for side, arm, parts in sides if parts]
    if not sides:
        return None
    longest = max(sum(max(value, 0.0) for _, value in parts) for _, _, parts in sides) or 1.0
    left, right = 130.0, WIDTH - 90.0
    across = _scale(0.0, longest, left, right)
    canvas = _Canvas()
    note = "ms a cycle, medians over launches"
    if any(value < 0 for _, _, parts in sides for _, value in parts):
        note += "; a part below 0 means that the timed parts add up to more than the cycle of the stream"
    top, step = 52.0, 56.0
    bottom = top + step * len(sides)
    for value in ticks(0.0, longest, 6):
        canvas.line(across(value), top - 8, across(value), bottom, "grid")
        canvas.text(across(value), bottom + 18, _short(value), "tick", "middle")
    kinds = {row.part: _PART_KINDS[index] for index, row in enumerate(report.budget)}
    x = left
    for row in report.budget:
        canvas.rect(x, 14, 12, 12, f"part {kinds[row.part]}")
        canvas.text(x + 18, 25, row.part, "label")
        x += 44 + 6.8 * len(row.part)
    for place, (side, _, parts) in enumerate(sides):
        y = top + place * step
        canvas.text(left - 12, y + 22, side, "label", "end")
        at = 0.0
        for part, value in parts:
            start, stop = across(at), across(at + max(value, 0.0))
            words = ms(value, report.decimals)
            canvas.rect(start, y + 4, max(stop - start - 2, 0.5), 28, f"part {kinds[part]}", f"{side}: {part} {words}")
            if stop - start > 7.2 * len(words):
                canvas.text((start + stop) / 2 - 1, y + 23, words, f"inside on-{kinds[part]}", "middle")
            at += max(value, 0.0)
        whole = sum(value for _, value in parts)
        canvas.text(across(at) + 6, y + 23, ms(whole, report.decimals), "label")
    canvas.text((left + right) / 2, bottom + 38, note, "tick", "middle")
    said = "; ".join(
        f"{side}: " + ", ".join(f"{part} {ms(value, report.decimals)}" for part, value in parts)
        for side, _, parts in sides
    )
    return Picture("budget", "Where the time of a cycle goes", f"{said}.", bottom + 52, canvas.body())


@dataclass(frozen=True)
class Ray:
    """How fast something is by its accept length: a line through the origin, and where it stands on it."""

    arm: str
    word: str
    side: str
    cycle_ms: float
    accept_length: float
    tokens_per_second: float


def break_even(rays: Sequence[Ray], wanted: Sequence[tuple[float, float]], summary: str) -> Picture:
    """Accept length against speed.

    Args:
        rays: one for each side.
        wanted: speeds in tokens per second, and the accept lengths at which the last ray has them.
        summary: the picture in words.
    """
    height, bottom, right = 340.0, 280.0, WIDTH - 170.0
    near, far = 1.0, max(*(ray.accept_length for ray in rays), *(length for _, length in wanted)) * 1.15
    fastest = max(tokens_per_second(far, ray.cycle_ms) for ray in rays)
    high = max(fastest, *(speed for speed, _ in wanted)) * 1.05
    across = _scale(near, far, _LEFT, right)
    place = _scale(0.0, high, bottom, _TOP)
    canvas = _Canvas()
    _axis(canvas, 0.0, high, place, right, "tok/s")
    for value in ticks(near, far, 6):
        canvas.text(across(value), bottom + 18, _short(value), "tick", "middle")
    canvas.line(_LEFT, bottom, right, bottom, "axis")
    canvas.text((_LEFT + right) / 2, bottom + 38, "accept length (tokens a cycle)", "tick", "middle")
    ends: list[tuple[float, str, str]] = []
    for speed, length in wanted:
        canvas.line(_LEFT, place(speed), right, place(speed), "then")
        canvas.line(across(length), place(speed), across(length), bottom, "then")
        ends.append((place(speed), f"wanted: {number(speed)} tok/s", "label muted"))
    for ray in rays:
        first, last = (tokens_per_second(length, ray.cycle_ms) for length in (near, far))
        canvas.line(across(near), place(first), across(far), place(last), f"ray {ray.arm}")
        hint = f"{ray.side}: {number(ray.tokens_per_second)} tok/s at {ray.accept_length:.2f}"
        canvas.mark(ray.arm, across(ray.accept_length), place(ray.tokens_per_second), hint)
        ends.append((place(last), f"{ray.word}: {number(ray.cycle_ms)} ms a cycle", f"label {ray.arm}-ink"))
    for row, (speed, length) in enumerate(wanted):
        canvas.mark("cross", across(length), place(speed), f"break-even at {length:.2f}")
        canvas.text(across(length) - 6, bottom - 8 - 15 * row, f"break-even {length:.2f}", "label", "end")
    for y, words, kind in _apart(ends, 16, _TOP, bottom):
        canvas.text(right + 8, y + 4, words, kind)
    _legend(canvas, [*((ray.arm, ray.side) for ray in rays), ("cross", "break-even")])
    return Picture("break-even", "Accept length against speed, with break-even", summary, height, canvas.body())


def _break_even(report: Report) -> Picture | None:
    """The line of the old side and of what is there instead, where they stand, and where they would be equally fast."""
    even, speeds = report.break_even, report.speeds
    if even is None or len(speeds) < 2:
        return None
    old = speeds[0]
    new = "everything new, today" if report.kind == "phantom" else "the same with the gap"
    wanted = even.wanted_tokens_per_second
    summary = (
        f"{number(even.tokens_per_second)} tok/s at accept length {even.at_accept_length:.2f}, and it would take "
        f"{even.accept_length:.2f} for {number(wanted)} tok/s; "
        f"the old side has {number(old.tokens_per_second)} tok/s at {old.accept_length:.2f}."
    )
    rays = [
        Ray("old", "old", old.side, old.cycle_ms, old.accept_length, old.tokens_per_second),
        Ray("new", "new", new, even.cycle_ms, even.at_accept_length, even.tokens_per_second),
    ]
    return break_even(rays, [(wanted, even.accept_length)], summary)


def _topology(report: Report) -> Picture | None:
    """Devices in the NUMA nodes that they hang on; one whose link was another one before stands out."""
    if not report.boards:
        return None
    nodes: dict[int | None, list[Board]] = {}
    for board in report.boards:
        nodes.setdefault(board.node, []).append(board)
    canvas = _Canvas()
    width, line = (WIDTH - 40 - 24) / 3, 16.0
    y = 16.0
    for node in sorted(nodes, key=lambda node: (node is None, node or 0)):
        boards = nodes[node]
        rows = [boards[at : at + 3] for at in range(0, len(boards), 3)]
        heights = [40 + line * max(len(board.link) + len(board.before) for board in row) for row in rows]
        canvas.rect(8, y, WIDTH - 16, sum(heights) + 8 * len(rows) + 34, "box")
        canvas.text(20, y + 20, "NUMA node not known" if node is None else f"NUMA node {node}", "label")
        y += 30
        for row, height in zip(rows, heights, strict=True):
            for place, board in enumerate(row):
                x = 20 + place * (width + 4)
                changed = "changed" if board.before else ""
                canvas.rect(x, y, width - 4, height, f"device {board.kind} {changed}".strip(), board.title)
                canvas.text(x + 10, y + 20, _fit(board.title, width - 24), "label", hint=board.title)
                said = [*board.link, *(f"before: {words}" for words in board.before)]
                for number_of, words in enumerate(said):
                    shown = _fit(words, width - 24, 11.5)
                    canvas.text(x + 10, y + 38 + line * number_of, shown, "tick", hint=words)
            y += height + 8
        y += 18
    other = [board.title for board in report.boards if board.before]
    summary = f"{count(len(report.boards), 'device')} on {count(len(nodes), 'NUMA node')}; "
    summary += f"connected otherwise than before: {', '.join(other)}." if other else "connected as before."
    return Picture("topology", "PCI links, NVLinks and NUMA nodes", summary, y, canvas.body())


def _watch(report: Report) -> Picture | None:
    """What else happened on the machine during each launch, one small panel a reading."""
    readings: dict[str, list[tuple[Launch, float]]] = {}
    for launch in report.launches:
        for name, value in launch.watch.items():
            readings.setdefault(name, []).append((launch, value))
        if "launch" in launch.seconds:
            readings.setdefault("seconds to become ready", []).append((launch, launch.seconds["launch"]))
    panels = [(name, held) for name, held in readings.items() if len(held) >= 2][:12]
    if not panels:
        return None
    columns, width, tall = 2, (WIDTH - 40) / 2, 118.0
    last = max(report.launches[-1].minutes, 1e-3)
    canvas = _Canvas()
    said: list[str] = []
    for index, (name, held) in enumerate(panels):
        x0 = 20 + (index % columns) * width
        y0 = 14 + (index // columns) * tall
        share = name.endswith("_share")
        words = clean(name.removesuffix("_share").replace("_", " "), 60)
        values = [value for _, value in held]
        low, high = (0.0, max(values) or 1.0) if share else (min(values), max(values))
        pad = 0.12 * (high - low) or 0.1 * abs(high) or 1.0
        place = _scale(low - pad * (not share), high + pad, y0 + tall - 26, y0 + 24)
        across = _scale(0.0, last, x0 + 54, x0 + width - 18)
        canvas.text(x0 + 4, y0 + 10, _fit(words, width - 20), "label", hint=words)
        for value in sorted({low, high}):
            canvas.line(x0 + 48, place(value), x0 + width - 12, place(value), "grid")
            canvas.text(x0 + 44, place(value) + 4, percent(value) if share else number(value), "tick", "end")
        for launch, value in held:
            shown = percent(value) if share else number(value)
            canvas.mark(launch.arm, across(launch.minutes), place(value), f"launch {launch.number}: {shown}", 4)
        said.append(f"{words} up to {percent(max(values)) if share else number(max(values))}")
    rows = math.ceil(len(panels) / columns)
    return Picture(
        "conditions", "The machine during each launch", f"{'; '.join(said)}.", 20 + rows * tall, canvas.body()
    )
