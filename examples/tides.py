"""A small web site with nothing but the standard library: when the tide is high, for the next two days.

Run it in a sandbox, and open it in a browser:

    holdfast cp examples/tides.py $id:/workspace/
    holdfast exec -d $id -- python3 /workspace/tides.py 3000
    holdfast open $id 3000
"""

import math
import sys
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

HOURS = 48
PARTS = ((12.42, 1.5, 0.4), (12.0, 0.5, 1.1), (23.93, 0.25, 2.0), (25.82, 0.2, 0.3))
"""Of a tide: hours of a period, metres, and phase."""
WIDTH, HEIGHT = 960, 250

PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Tides · Kelp Harbour</title>
<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,"><style>
:root {{ color: #0f2a33; background: #f4f8f7; font: 16px/1.5 Inter, system-ui, sans-serif; }}
body {{ margin: 0 auto; max-width: 60rem; padding: 2rem; }}
h1 {{ font-size: 1.7rem; letter-spacing: -.02em; margin: 0; }} p {{ margin: .2rem 0 1.4rem; color: #4d6a72; }}
.cards {{ display: flex; gap: 1rem; margin-bottom: 1.2rem; }}
.card {{ flex: 1; background: #fff; border-radius: 12px; padding: .9rem 1.2rem; box-shadow: 0 1px 3px #0f2a3318; }}
.card b {{ display: block; font-size: 1.6rem; letter-spacing: -.02em; }} .card span {{ color: #4d6a72; }}
svg {{ display: block; width: 100%; background: #fff; border-radius: 12px; box-shadow: 0 1px 3px #0f2a3318; }}
text {{ font-size: 13px; fill: #4d6a72; }}
</style><h1>Kelp Harbour</h1><p>Tides for {day} and {next_day}</p><div class="cards">{cards}</div>
<svg viewBox="0 0 {width} {height}" role="img" aria-label="The tide over two days"><defs>
<linearGradient id="sea" x1="0" y1="0" x2="0" y2="1"><stop offset="0" stop-color="#2a9d8f" stop-opacity=".75"/>
<stop offset="1" stop-color="#2a9d8f" stop-opacity=".12"/></linearGradient></defs>{chart}</svg></html>"""


def level(at: datetime) -> float:
    """Return metres above the lowest tide."""
    hours = at.timestamp() / 3600
    return 2.6 + sum(size * math.cos(2 * math.pi * hours / period + phase) for period, size, phase in PARTS)


def turns(begin: datetime) -> list[tuple[str, datetime]]:
    """Return the high and low tides from a moment on."""
    step = timedelta(minutes=5)
    moments = [begin + step * number for number in range(HOURS * 12)]
    found = []
    for at in moments:
        before, here, after = level(at - step), level(at), level(at + step)
        if before < here >= after:
            found.append(("High", at))
        elif before > here <= after:
            found.append(("Low", at))
    return found


def page(now: datetime) -> str:
    begin = now.replace(hour=0, minute=0, second=0, microsecond=0)

    def x(at: datetime) -> float:
        return (at - begin).total_seconds() / 3600 / HOURS * WIDTH

    def y(metres: float) -> float:
        return HEIGHT - 40 - metres / 5.4 * (HEIGHT - 60)

    line = " ".join(
        f"{x(at):.1f},{y(level(at)):.1f}" for at in (begin + timedelta(minutes=15 * n) for n in range(HOURS * 4 + 1))
    )
    chart = [f'<polygon points="0,{HEIGHT} {line} {WIDTH},{HEIGHT}" fill="url(#sea)"/>']
    chart.append(f'<polyline points="{line}" fill="none" stroke="#2a9d8f" stroke-width="2.5"/>')
    for hour in range(6, HOURS, 6):
        at = begin + timedelta(hours=hour)
        chart.append(f'<text x="{x(at):.0f}" y="{HEIGHT - 10}" text-anchor="middle">{at:%H:%M}</text>')
    for kind, at in turns(begin):
        if not 25 < x(at) < WIDTH - 25:  # half of it would be cut off
            continue
        beside = y(level(at)) + (-10 if kind == "High" else 20)
        chart.append(f'<text x="{x(at):.0f}" y="{beside:.0f}" text-anchor="middle">{level(at):.1f} m</text>')
    chart.append(f'<line x1="{x(now):.1f}" x2="{x(now):.1f}" y1="0" y2="{HEIGHT}" stroke="#e76f51"/>')
    chart.append(f'<circle cx="{x(now):.1f}" cy="{y(level(now)):.1f}" r="6" fill="#e76f51"/>')
    rising = "rising" if level(now + timedelta(minutes=5)) > level(now) else "falling"
    cards = [f'<div class="card"><span>Now</span><b>{level(now):.1f} m</b><span>{rising}</span></div>']
    for kind, at in turns(now)[:3]:
        cards.append(f'<div class="card"><span>{kind} tide</span><b>{at:%H:%M}</b><span>{level(at):.1f} m</span></div>')
    return PAGE.format(
        day=f"{begin:%A %d %B}",
        next_day=f"{begin + timedelta(days=1):%A}",
        cards="".join(cards),
        chart="".join(chart),
        width=WIDTH,
        height=HEIGHT,
    )


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        at = parse_qs(urlsplit(self.path).query).get("at")
        try:
            now = datetime.fromisoformat(at[0]) if at else datetime.now()
        except ValueError:
            self.send_error(400, "at is no moment such as 2026-11-19T10:00")
            return
        body = page(now).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
