// The desktop of the sandbox, by VNC. Its size follows the window. Nothing is copied in or out by itself: a sandbox could
// read what you have copied elsewhere, or put a command where you are about to paste.

import RFB from "../vendor/novnc.js";
import { Connection } from "./connection.js";
import { hush, plain, show, tell } from "./frame.js";

const find = (id) => document.getElementById(id);
const screen = find("screen"), clip = find("clip"), clipText = find("clip-text"), clipButton = find("clipboard");
let desktop = null;

const line = new Connection({
  query: () => (line.isWanted ? { start: 1 } : {}),
  onWords: (words) => words.ready && begin(line.raw),
  onBytes() {},
  onState(state, detail) {
    if (state === "failed") failed(detail);
    else show(state, { asleep: () => line.wake(), locked: () => location.reload() });
  },
});

// The socket speaks VNC from here on.
function begin(socket) {
  const rfb = (desktop = new RFB(screen, socket, { shared: true }));
  rfb.resizeSession = true;
  rfb.scaleViewport = true; // until the desktop has the window's size, or where it cannot have it
  rfb.background = "transparent";
  rfb.addEventListener("connect", () => {
    line.connected();
    rfb.focus();
  });
  rfb.addEventListener("disconnect", () => {
    if (desktop !== rfb) return;
    desktop = null;
    line.lost();
  });
  rfb.addEventListener("desktopname", ({ detail }) => {
    const name = plain(detail.name, 80);
    document.title = name ? `${name} · Desktop` : "Desktop";
  });
  rfb.addEventListener("clipboard", ({ detail }) => (clipText.value = detail.text.slice(0, 1 << 20)));
}

const FAILURES = {
  nothing_listens: ["No desktop is running", "This sandbox has none: its image has to contain one.", "Try again"],
  service_stopped: ["The desktop was stopped", "Nobody used it, or it ended. What was open in it is gone.", "Start it"],
};

function failed({ code, message }) {
  const [title, text, label] = FAILURES[code] ?? ["The desktop could not be opened", plain(message, 300), "Try again"];
  show("failed");
  tell(title, text, label, again, true);
}

function again() {
  hush();
  show("connecting");
  line.again();
}

clipButton.onclick = () => {
  clip.hidden = !clip.hidden;
  clipButton.setAttribute("aria-expanded", String(!clip.hidden));
  if (clip.hidden) desktop?.focus();
  else clipText.focus();
};
clip.onsubmit = (event) => {
  event.preventDefault();
  desktop?.clipboardPasteFrom(clipText.value);
  clipButton.click();
};
clip.onkeydown = (event) => event.key === "Escape" && clipButton.click();
find("full").hidden = !document.fullscreenEnabled;
find("full").onclick = () => {
  if (document.fullscreenElement) document.exitFullscreen();
  else document.documentElement.requestFullscreen();
  desktop?.focus();
};

show("connecting");
line.connect();
