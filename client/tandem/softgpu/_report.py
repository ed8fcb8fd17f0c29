"""One HTML file about a run: figures, charts and a picture of the timeline. Needs no network.

All text from the timeline is escaped: whoever named a kernel chose it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import zip_longest
from pathlib import Path
from string import Template
from typing import Any

from tandem._page import SORTING, STYLE, count, fact, hue, note, plain, size, span, table, time_text
from tandem.softgpu._buckets import Buckets
from tandem.softgpu._summary import Summary, summarize
from tandem.softgpu._timeline import Timeline
from tandem.units import format_bytes

_TEMPLATE = Path(__file__).with_name("report.html")
_MOST_TRACKS = 100  # in the picture
_MOVE_NAMES = {
    "copy_htod": "host to device",
    "copy_dtoh": "device to host",
    "copy_dtod": "within the device",
    "memset": "memset",
}


def write_report(timeline: Timeline, about: dict[str, Any], output: Path) -> Summary:
    """Read the timeline and write the report; `about` is the device's settings at its start.

    Raises:
        NotFoundError: there is no such timeline.
        UsageError: it cannot be read.
        OSError: the output cannot be written.
    """
    summary = summarize(timeline)
    page = Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        style=STYLE,
        sorting=SORTING,
        title=escape(f"Software GPU: {plain(timeline.path.name)}"),
        kind="A modelled device: order, overlap and sharing are meaningful, speed is not.",
        facts="".join(fact(*found) for found in _facts(summary, about)),
        notes="".join(map(note, notes(timeline, summary))),
        charts=_charts(summary, about) or "<p>Nothing used an engine.</p>",
        picture=_picture(summary),
        tables="".join(_tables(summary)),
        data=_embedded(_drawing(summary)),
    )
    output.write_text(page, encoding="utf-8")
    return summary


def notes(timeline: Timeline, summary: Summary) -> list[str]:
    """Sentences on what the report leaves out."""
    found = []
    if summary.rows == 0:
        found.append("The timeline has no operation.")
    if timeline.ends_early:
        found.append("The timeline ends early: its disk was full, or it was not allowed to grow.")
    if timeline.skipped_lines:
        lines = (
            "one line was"
            if timeline.skipped_lines == 1
            else f"{timeline.skipped_lines} lines were"
        )
        found.append(
            f"{lines} left out: cut off, or not rows of a timeline. The run may have been "
            "interrupted, or its disk full."
        )
    if summary.drawn_gap_ns > 1:
        found.append(
            f"The picture draws what lies within {time_text(summary.drawn_gap_ns)} as one."
        )
    if len(summary.tracks) > _MOST_TRACKS:
        found.append(f"The picture shows {_MOST_TRACKS} of {len(summary.tracks)} streams.")
    found += [
        f"The table of {what} has one line for all beyond its limit."
        for what in sorted(summary.lumped - {"tracks"})
    ]
    return found


def _facts(summary: Summary, about: dict[str, Any]) -> Iterable[tuple[str, str]]:
    for device in _devices(about):
        sms, memory = device.get("sm_count", "?"), device.get("memory_bytes")
        size = f", {format_bytes(memory)}" if isinstance(memory, int) else ""
        yield "device", f"{device.get('name', '?')}, {sms} SMs{size}"
    for key in ("clock", "mode"):
        if key in about:
            yield key, str(about[key])
    yield "length", time_text(summary.length_ns)
    yield "operations", f"{summary.rows - summary.switches:,}"
    yield "clients", f"{len(summary.clients):,}"
    turn = f", {time_text(summary.switch_ns)} in all" if summary.switches else ""
    yield "changes of contexts", f"{summary.switches:,}{turn}"
    slice_ns, switch_ns = about.get("slice_ns"), about.get("switch_ns")
    if isinstance(slice_ns, int) and isinstance(switch_ns, int):
        yield "slice, cost of a change", f"{time_text(slice_ns)}, {time_text(switch_ns)}"


def _devices(about: dict[str, Any]) -> list[dict[str, Any]]:
    devices = about.get("devices")
    return [d for d in devices if isinstance(d, dict)] if isinstance(devices, list) else []


def _charts(summary: Summary, about: dict[str, Any]) -> str:
    devices = _devices(about)
    found = []
    for (gpu, engine), buckets in sorted(summary.engines.items()):
        levels = buckets.levels()
        top, known = 1.0, None
        if engine == "SMs":
            known = devices[gpu].get("sm_count") if gpu < len(devices) else None
            top = max(float(known or 0), *levels)
        total_ns = max(1, summary.length_ns)
        share = sum(levels) * buckets.width_ns / total_ns / top
        caption = f"GPU {gpu}, {engine}: {share:.3g} of 1 on average"
        if engine == "SMs":
            of = f"of {top:.0f}" if known else f"(of how many is not known; {top:.0f} at most)"
            caption = f"GPU {gpu}, {engine}: {share * top:.3g} {of} on average"
        offset = ((buckets.begin_ns or 0) - (summary.begin_ns or 0)) / buckets.width_ns
        stack = [[level / top for level in levels]]
        keys = ""
        if engine == "SMs":
            occupants = summary.occupants[gpu]
            stack = [
                [level / top for level in one.levels(buckets.width_ns)]
                for one in occupants.values()
            ]
            keys = _keys(occupants, summary)
        found.append(_chart(caption, stack, offset, summary, buckets) + keys)
    return "".join(found)


def _keys(occupants: Mapping[int | str, Buckets], summary: Summary) -> str:
    """A legend for the areas; empty if there is only one."""
    if len(occupants) < 2:
        return ""
    names = "".join(
        f"<span><i style='--hue:{hue(place)}'></i>{escape(_occupant(client, summary))}</span>"
        for place, client in enumerate(occupants)
    )
    return f"<div class='keys'>{names}</div>"


def _occupant(client: int | str, summary: Summary) -> str:
    figures = summary.clients.get(client)
    return f"client {client}, pid {figures.pid}" if figures else str(client)


def _chart(
    caption: str,
    stack: Sequence[Sequence[float]],
    offset: float,
    summary: Summary,
    buckets: Buckets,
) -> str:
    """Stacked areas; all charts span the whole run, with a bucket as the unit."""
    width = max(1.0, summary.length_ns / buckets.width_ns)
    span = time_text(summary.length_ns)
    areas, below = [], [0.0] * max(map(len, stack))
    for place, levels in enumerate(stack):
        above = [a + b for a, b in zip_longest(below, levels, fillvalue=0.0)]
        edge = [*_steps(above, offset), *reversed(_steps(below, offset))]
        look = f" style='fill:hsl({hue(place)} 55% 60%)'" if len(stack) > 1 else ""
        areas.append(f"<path{look} d='M{'L'.join(edge)}Z'/>")
        below = above
    return (
        f"<figure><svg viewBox='0 0 {width:.2f} 64' preserveAspectRatio='none' role='img'>"
        f"{''.join(areas)}</svg>"
        f"<figcaption><span>{escape(caption)}</span><span>{span}</span></figcaption></figure>"
    )


def _steps(levels: Sequence[float], offset: float) -> list[str]:
    heights = [f"{64 - 60 * min(1.0, level):.1f}" for level in levels]
    return [f"{offset + x:.2f} {y}" for i, y in enumerate(heights) for x in (i, i + 1)]


def _picture(summary: Summary) -> str:
    if not summary.spans:
        return "<p>There is nothing to draw.</p>"
    return (
        '<canvas id="picture"></canvas><p class="note" id="where"></p>'
        '<p class="note">Wheel: zoom. Drag: move. Double click: everything.</p>'
    )


def _drawing(summary: Summary) -> dict[str, Any]:
    labels: dict[str, int] = {}
    begin_ns = summary.begin_ns or 0
    shown = sorted(summary.tracks)[:_MOST_TRACKS]
    lines = {summary.tracks.index(track): i for i, track in enumerate(shown)}
    spans = [
        [
            *(s.start_ns - begin_ns, s.end_ns - begin_ns, lines[s.track]),
            *(labels.setdefault(s.label, len(labels)), s.count),
        ]
        for s in summary.spans
        if s.track in lines
    ]
    tracks = [track.label for track in shown]
    return {
        "length_ns": summary.length_ns,
        "tracks": tracks,
        "labels": [plain(label) for label in labels],
        "spans": spans,
    }


def _embedded(value: object) -> str:
    """JSON that cannot terminate the script element around it."""
    text = json.dumps(value, separators=(",", ":"))  # ASCII only
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _tables(summary: Summary) -> Iterable[str]:
    total = sum(client.sm_ns for client in summary.clients.values()) or 1
    yield table(
        "Clients",
        (
            "client",
            "pid",
            "kernels",
            "share of SM time",
            "copies",
            "to device",
            "from device",
            "turns",
        ),
        (
            (
                str(number),
                (c.pid, str(c.pid)),
                count(c.kernels),
                (c.sm_ns, f"{c.sm_ns / total:.1%}"),
                count(c.copies),
                size(c.to_device_bytes),
                size(c.from_device_bytes),
                count(c.turns),
            )
            for number, c in sorted(summary.clients.items(), key=lambda item: -item[1].sm_ns)
        ),
    )
    kernels = sorted(summary.kernels.items(), key=lambda item: -item[1].total_ns)
    yield table(
        "Kernels",
        ("name", "launches", "total", "mean", "longest part", "parts", "bytes"),
        (
            (
                name,
                count(k.launches),
                span(k.total_ns),
                span(k.total_ns / max(1, k.launches)),
                span(k.longest_ns),
                count(k.parts),
                size(k.bytes),
            )
            for name, k in kernels
        ),
    )
    yield table(
        "Streams",
        ("client", "stream", "gpu", "operations", "busy", "waited", "longest wait"),
        (
            (
                *(key if isinstance(key, str) else str(key[0]),),
                "" if isinstance(key, str) else str(key[1]),
                (s.gpu, str(s.gpu)),
                count(s.operations),
                span(s.busy_ns),
                span(s.waited_ns),
                span(s.longest_wait_ns),
            )
            for key, s in sorted(summary.streams.items(), key=lambda item: -item[1].waited_ns)
        ),
    )
    yield table(
        "Copies",
        ("gpu", "direction", "count", "bytes", "busy", "rate"),
        (
            (
                str(gpu),
                _MOVE_NAMES.get(kind, kind),
                count(m.count),
                size(m.bytes),
                span(m.busy_ns),
                (m.bytes / max(1, m.busy_ns), f"{m.bytes / max(1, m.busy_ns):.3g} GB/s"),
            )
            for (gpu, kind), m in sorted(summary.moves.items())
        ),
    )
