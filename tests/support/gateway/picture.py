"""Makes the picture of README: what `holdfast open` prints, and the page of a sandbox in a real browser behind it.

    PYTHONPATH=src:tests .venv/bin/python -m support.gateway.picture

It looks best with Debian's fonts-inter and fonts-jetbrains-mono.
"""

import base64
import html
import os
import re
import subprocess
import sys
from pathlib import Path
from string import Template

from playwright.sync_api import Browser, sync_playwright

from support.browsers.chromium import needs_chromium
from support.daemons.daemon import DaemonProcess
from support.waiting import wait_for

ROOT = Path(__file__).parents[3]
PICTURE = ROOT / "docs" / "pictures" / "open.webp"
MOMENT = "2026-11-19T10:20"
COMMANDS = (
    "holdfast cp examples/tides.py $id:/workspace/",
    "holdfast exec -d $id -- python3 tides.py 3000",
    "holdfast open $id 3000",
)
IN_WEBP = """async (png) => {
  const image = new Image();
  image.src = "data:image/png;base64," + png;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.width, image.height];
  canvas.getContext("2d").drawImage(image, 0, 0);
  return canvas.toDataURL("image/webp", 0.9).split(",")[1];
}"""
SCENE = Template((Path(__file__).parent / "picture.html").read_text())


def transcript(daemon: DaemonProcess) -> tuple[list[tuple[str, str]], str, str]:
    """Run the commands; return each with what it printed, the session, and the link."""
    environment = {**os.environ, "HOLDFAST_URL": daemon.url, "HOLDFAST_API_KEY": daemon.key}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"

    def run(command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    environment["id"] = run("holdfast new")
    said = []
    for command in COMMANDS:
        said.append((command, run(command)))
        if " exec " in command:
            wait_for(
                lambda: (
                    "3000"
                    in run('curl -s $HOLDFAST_URL/v1/sessions/$id/ports -H "Authorization: Bearer $HOLDFAST_API_KEY"')
                ),
                "it listens",
            )
    return said, environment["id"], said[-1][1]


def page_of(browser: Browser, link: str) -> tuple[bytes, str]:
    """Open the link as a person does; return what is to be seen, and what the address bar says."""
    tab = browser.new_page(viewport={"width": 1000, "height": 585}, device_scale_factor=2)
    tab.goto(f"{link}&next=%2F%3Fat%3D{MOMENT}")
    tab.wait_for_selector("svg")
    tab.wait_for_load_state("networkidle")
    seen, address = tab.screenshot(), tab.url.partition("?")[0]
    tab.close()
    return seen, address


def make() -> None:
    with DaemonProcess(network="none", listen="127.0.0.1:8080") as daemon, sync_playwright() as playwright:
        said, _, link = transcript(daemon)
        browser = playwright.chromium.launch(executable_path=needs_chromium(), args=["--no-sandbox"])
        seen, address = page_of(browser, link)
        lines = []
        for command, printed in said:
            lines.append(f"<b>$$</b> {html.escape(command)}".replace("$$", "$"))
            short = re.sub(r"(#ticket=.{6}).*", r"\1…", printed)
            lines += [f"<i>{html.escape(line)}</i>" for line in short.splitlines() if line]
        scene = SCENE.substitute(
            page=base64.b64encode(seen).decode(),
            address=html.escape(address.removeprefix("http://")),
            said="\n".join(lines),
        )
        tab = browser.new_page(viewport={"width": 1120, "height": 810}, device_scale_factor=1.5)
        tab.set_content(scene)
        tab.wait_for_function("document.fonts.status === 'loaded' && [...document.images].every((i) => i.complete)")
        PICTURE.parent.mkdir(exist_ok=True)
        PICTURE.write_bytes(base64.b64decode(tab.evaluate(IN_WEBP, base64.b64encode(tab.screenshot()).decode())))
        browser.close()
    print(f"{PICTURE}: {PICTURE.stat().st_size >> 10} KB")


if __name__ == "__main__":
    make()
