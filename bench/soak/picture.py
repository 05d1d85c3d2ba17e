"""Draws the samples of a soak as an SVG: memory and open files of the server and of the devices, over the rounds."""

WIDTH, HEIGHT, LEFT, TOP, GAP = 900, 190, 70, 46, 56
SERVER, DEVICES, KILL = "#1f6feb", "#d97706", "#9ca3af"
PANELS = [
    ("Resident memory, MB", [("server", SERVER, 3, 1024 / 1e6), ("160 devices, one process", DEVICES, 7, 1024 / 1e6)]),
    ("Open sockets", [("server", SERVER, 4, 1), ("devices", DEVICES, 8, 1)]),
    ("Other open files", [("server", SERVER, 5, 1), ("devices", DEVICES, 9, 1)]),
]


def ticks(most):
    step = next(s for e in range(-1, 9) for s in (10**e, 2 * 10**e, 5 * 10**e) if most / s <= 5)
    return [step * i for i in range(int(most / step) + 1)]


def panel(rows, title, lines, top, rounds, from_round):
    x = lambda value: LEFT + value / rounds * (WIDTH - LEFT - 20)
    most = 1.08 * max(row[column] * unit for _, _, column, unit in lines for row in rows)
    y = lambda value: top + HEIGHT - value / most * HEIGHT
    out = [f'<text x="{LEFT}" y="{top - 10}" class="title">{title}</text>']
    for tick in ticks(most):
        out.append(f'<path class="grid" d="M{LEFT} {y(tick):.1f}H{WIDTH - 20}"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for tick in ticks(rounds):
        out.append(f'<text x="{x(tick):.1f}" y="{top + HEIGHT + 16}" text-anchor="middle">{tick:g}</text>')
    for before, after in zip(rows, rows[1:]):
        if after[1] != before[1]:
            out.append(f'<path stroke="{KILL}" stroke-dasharray="3 3" d="M{x(after[2]):.1f} {top}v{HEIGHT}"/>')
    out.append(f'<rect x="{x(from_round):.1f}" y="{top}" width="{x(rounds) - x(from_round):.1f}" height="{HEIGHT}" class="steady"/>')
    label = WIDTH - 20
    for name, colour, column, unit in reversed(lines):
        lives = {}
        for row in rows:
            # The devices' process is never started again.
            lives.setdefault(row[1] if column < 7 else 0, []).append(f"{x(row[2]):.1f} {y(row[column] * unit):.1f}")
        for points in lives.values():
            out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.4" points="{" ".join(points)}"/>')
        out.append(f'<text x="{label}" y="{top - 10}" text-anchor="end" fill="{colour}">{name}</text>')
        label -= 8 * len(name) + 20
    return "\n".join(out)


def draw(rows, warm_up):
    rounds, last = max(row[2] for row in rows), max(row[1] for row in rows)
    from_round = min(row[2] for row in rows if row[1] == last) + warm_up
    step = HEIGHT + GAP
    parts = [panel(rows, title, lines, TOP + i * step, rounds, from_round) for i, (title, lines) in enumerate(PANELS)]
    height = TOP + len(PANELS) * step
    note = "rounds; dashed: the server was killed (kill -9) and started again; shaded: where slopes are measured"
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">
<style>text {{ font: 12px system-ui, sans-serif; fill: #374151 }} .title {{ font-weight: 600 }} .grid {{ stroke: #e5e7eb }} .steady {{ fill: #1f6feb; opacity: .06 }}
text[fill] {{ fill: revert-layer }}</style>
<rect width="{WIDTH}" height="{height}" fill="#fff"/>
{chr(10).join(parts)}
<text x="{LEFT}" y="{height - 8}">{note}</text>
</svg>
"""
