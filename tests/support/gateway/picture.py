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

from playwright.sync_api import Browser, expect, sync_playwright

from support.browsers.chromium import needs_chromium
from support.daemons.daemon import DaemonProcess
from support.waiting import wait_for

ROOT = Path(__file__).parents[3]
PICTURE = ROOT / "docs" / "pictures" / "open.webp"
MOMENT = "2026-11-19T10:20"
COMMANDS = (
    "holdfast cp examples/tides.py $id:/workspace/",
    "holdfast exec -d $id -- python3 /workspace/tides.py 3000",
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


def run_commands(daemon: DaemonProcess) -> tuple[str, str]:
    """Run them as a person would; return all that is to be read then, and the link."""
    environment = {**os.environ, "HOLDFAST_URL": daemon.url, "HOLDFAST_API_KEY": daemon.key}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"

    def run(command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    environment["id"] = run("holdfast new")
    lines, printed = [], ""
    for command in COMMANDS:
        printed = run(command)
        lines.append(f"<b>$</b> {html.escape(command)}")
        short = re.sub(r"(#ticket=.{6}).*", r"\1…", printed)
        lines += [f"<i>{html.escape(line)}</i>" for line in short.splitlines() if line]
    return "\n".join(lines), printed


def look_at(browser: Browser, link: str) -> tuple[bytes, str]:
    """Open the link as a person does; return what is to be seen, and what the address bar says."""
    tab = browser.new_page(viewport={"width": 1000, "height": 585}, device_scale_factor=2)
    tab.goto(link)
    expect(tab).to_have_url(re.compile(r"\d/$"))  # it was handed in

    def shows_a_chart() -> bool:
        tab.goto(f"{tab.url.partition('?')[0]}?at={MOMENT}")  # whatever the time is now, it is the same picture
        return tab.locator("svg").count() == 1

    wait_for(shows_a_chart, "the program listens")
    seen, address = tab.screenshot(), tab.url.partition("?")[0]
    tab.close()
    return seen, address


def make(picture: Path, daemon: DaemonProcess, browser: Browser) -> str:
    """Write the picture; return the address of the page in it."""
    said, link = run_commands(daemon)
    seen, address = look_at(browser, link)
    scene = SCENE.substitute(
        page=base64.b64encode(seen).decode(),
        address=html.escape(address.removeprefix("http://")),
        said=said,
    )
    tab = browser.new_page(viewport={"width": 1120, "height": 810}, device_scale_factor=1.5)
    tab.set_content(scene)
    tab.wait_for_function("document.fonts.status === 'loaded' && [...document.images].every((i) => i.complete)")
    picture.write_bytes(base64.b64decode(tab.evaluate(IN_WEBP, base64.b64encode(tab.screenshot()).decode())))
    tab.close()
    return address


def main() -> None:
    with DaemonProcess(network="none", listen="127.0.0.1:8080") as daemon, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=needs_chromium(), args=["--no-sandbox"])
        make(PICTURE, daemon, browser)
        browser.close()
    print(f"{PICTURE}: {PICTURE.stat().st_size >> 10} KB")


if __name__ == "__main__":
    main()
