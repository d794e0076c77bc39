// A terminal in the sandbox. The program goes on while the page is away; the page counts what it has shown, and asks for
// what comes after that, so nothing is lost or shown twice.

import { FitAddon, Terminal, WebLinksAddon } from "../vendor/xterm.js";
import { Connection } from "./connection.js";
import { hush, plain, show, tell } from "./frame.js";
import { begin, remember, restore } from "./own.js";

const DARK = {
  background: "#111214", foreground: "#dfe1e5", cursor: "#4fc3b0", cursorAccent: "#111214", selectionBackground: "#3a4a55",
  black: "#2a2c31", red: "#f07178", green: "#7ec699", yellow: "#e6c07b", blue: "#82aaff", magenta: "#c792ea", cyan: "#6cc7c0", white: "#c8ccd4",
  brightBlack: "#6b7079", brightRed: "#ff8b92", brightGreen: "#a5e0bb", brightYellow: "#ffd896", brightBlue: "#a6c3ff", brightMagenta: "#ddb3ff", brightCyan: "#93e3dc", brightWhite: "#ffffff",
};
const LIGHT = {
  background: "#fdfdfc", foreground: "#24272c", cursor: "#0f766e", cursorAccent: "#fdfdfc", selectionBackground: "#cfe5e2",
  black: "#24272c", red: "#c0303b", green: "#1c7c4a", yellow: "#946200", blue: "#2a5bd0", magenta: "#8c3bb8", cyan: "#0d7480", white: "#c9ccd1",
  brightBlack: "#6b7079", brightRed: "#d6434e", brightGreen: "#23935a", brightYellow: "#a97300", brightBlue: "#3f70e6", brightMagenta: "#a24fd0", brightCyan: "#138a97", brightWhite: "#8a8f98",
};
const MOST_WAITING = 4096; // characters typed while we reconnect
const PIECE = 16 << 10; // bytes of input in one message
const TAKEN = 128 << 10; // after so many bytes shown we ask for more
const FRESH = "\x1b[!p\x1b[?1000;1002;1003;1004;1006;2004l\x1b[0m\r\n"; // modes as a terminal begins; what it shows stays
const KEYS = { esc: "\x1b", tab: "\t", left: "D", up: "A", down: "B", right: "C" };

allowStyles();
const dark = matchMedia("(prefers-color-scheme: dark)");
const terminal = new Terminal({
  cursorBlink: true,
  fontFamily: 'ui-monospace, "SF Mono", "Cascadia Code", Menlo, Consolas, "DejaVu Sans Mono", monospace',
  fontSize: matchMedia("(max-width: 520px)").matches ? 12 : 13,
  lineHeight: 1.25,
  minimumContrastRatio: 4.5,
  scrollback: 10_000,
  theme: dark.matches ? DARK : LIGHT,
  linkHandler: {
    activate: (_event, address) => openLink(address),
    hover: (_event, address) => (screen.title = plain(address, 500)), // its text may say anything
    leave: () => (screen.title = ""),
  },
});
const screen = document.getElementById("screen");
const fit = new FitAddon();
terminal.loadAddon(fit);
terminal.loadAddon(new WebLinksAddon((_event, address) => openLink(address)));
terminal.open(screen);
fit.fit();

let own = null; // which terminal is ours
let offset = 0; // of the next byte to show
let taken = 0; // bytes of this connection that are on the screen
let told = 0; // how many of these we have said
let waiting = ""; // what was typed while nobody was there
let replayUntil = 0; // before this offset somebody else has answered the questions that programs ask of a terminal
let isReplaying = false;
let isNewPage = true;
let isControl = false;

const encoder = new TextEncoder();
const line = new Connection({
  silentMs: 45_000,
  query: () => ({
    rows: terminal.rows,
    columns: terminal.cols,
    offset,
    ...(own.process ? { process: own.process } : { key: own.key }),
  }),
  onWords(words) {
    if (words.attached) attached(words.attached);
    else if (words.dropped) skip(words.dropped);
    else if (words.exit) exited(words.exit);
  },
  onBytes(data) {
    const bytes = new Uint8Array(data);
    offset += bytes.length;
    const isOld = offset >= replayUntil;
    terminal.write(bytes, () => {
      if (isOld) isReplaying = false;
      taken += bytes.length;
      if (taken - told >= TAKEN) line.send(JSON.stringify({ taken: (told = taken) }));
    });
  },
  onState(state, detail) {
    if (state === "failed" && detail.code === "process_not_found") lost();
    else if (state === "failed") failed(detail);
    else if (state === "ended") ended(detail);
    else {
      show(state, { asleep: () => line.wake(), locked: () => location.reload() });
      if (state === "connected") terminal.focus();
      else if (state !== "reconnecting") waiting = "";
    }
    terminal.options.cursorBlink = state === "connected";
  },
});

function attached({ process_id, offset: from, process }) {
  own.process = process_id;
  remember(own);
  taken = told = 0;
  replayUntil = isNewPage ? process.output_bytes : 0;
  isReplaying = isNewPage && from < replayUntil;
  isNewPage = false;
  if (from > offset) skip(from - offset);
  line.connected();
  resized();
  if (waiting) type(waiting);
  waiting = "";
}

function skip(bytes) {
  offset += bytes;
  note(`${bytes.toLocaleString("en")} bytes of output are no longer kept`);
}

function note(text) {
  terminal.write(`\r\n\x1b[0;2m— ${text} —\x1b[0m\r\n`);
}

function failed({ message }) {
  show("failed");
  tell("The terminal could not be opened", plain(message, 300), "Try again", again, true);
}

function exited({ exit_code }) {
  line.ended(exit_code);
}

function ended(code) {
  show("ended");
  tell("The shell has ended", `${code ? `Exit code ${code}. ` : ""}Press Enter for a new one.`, "New shell", startAgain);
}

// The session slept, or was restarted, and its programs are gone. Who has just woken it wants a new one at once.
function lost() {
  if (line.wasWoken) {
    note("the sandbox has slept; this is a new shell");
    startAgain();
  } else {
    show("ended");
    tell("This shell is gone", "The sandbox was stopped meanwhile. Press Enter for a new one.", "New shell", startAgain);
  }
}

async function startAgain() {
  own = await begin();
  offset = replayUntil = 0;
  isReplaying = false;
  waiting = "";
  terminal.write(`${terminal.buffer.active.type === "alternate" ? "\x1b[?1049l" : ""}${FRESH}`);
  again();
}

function again() {
  hush();
  show("connecting");
  line.again();
}

// -- what is typed ----------------------------------------------------------------------------------------------------

terminal.onData((text) => {
  if (isReplaying) return; // an answer to a question of long ago
  if (isControl && /^[@-_a-z]$/.test(text)) {
    text = String.fromCharCode(text.toUpperCase().charCodeAt(0) & 31);
    setControl(false);
  }
  if (line.state === "connected") type(text);
  else if (line.state === "reconnecting" && waiting.length + text.length <= MOST_WAITING) waiting += text;
});
terminal.onBinary((text) => line.state === "connected" && sendBytes(Uint8Array.from(text, (letter) => letter.charCodeAt(0))));

function type(text) {
  sendBytes(encoder.encode(text));
}

function sendBytes(bytes) {
  for (let at = 0; at < bytes.length; at += PIECE) line.send(bytes.subarray(at, at + PIECE));
}

terminal.attachCustomKeyEventHandler((event) => {
  const copies = event.ctrlKey && event.shiftKey && event.code === "KeyC" && !event.altKey && !event.metaKey;
  if (!copies) return !(event.ctrlKey && event.shiftKey && event.code === "KeyV"); // the browser pastes
  event.preventDefault();
  if (event.type === "keydown" && terminal.hasSelection()) navigator.clipboard?.writeText(terminal.getSelection());
  return false;
});

document.getElementById("keys").addEventListener("pointerdown", (event) => {
  const key = event.target.dataset.key;
  if (!key) return;
  event.preventDefault(); // the keyboard stays
  if (key === "ctrl") setControl(!isControl);
  else terminal.input(KEYS[key].length === 1 && KEYS[key] >= "A" ? `\x1b${terminal.modes.applicationCursorKeysMode ? "O" : "["}${KEYS[key]}` : KEYS[key]);
});

function setControl(on) {
  isControl = on;
  document.querySelector("[data-key=ctrl]").setAttribute("aria-pressed", String(on));
}

// -- how it looks -----------------------------------------------------------------------------------------------------

dark.addEventListener("change", () => (terminal.options.theme = dark.matches ? DARK : LIGHT));
let fitting = 0;
new ResizeObserver(() => {
  cancelAnimationFrame(fitting);
  fitting = requestAnimationFrame(() => fit.fit());
}).observe(screen);
terminal.onResize(resized);
terminal.onTitleChange((title) => {
  const words = plain(title, 80);
  document.title = words ? `${words} · Terminal` : "Terminal";
});

function resized() {
  if (line.state === "connected") line.send(JSON.stringify({ resize: { rows: terminal.rows, columns: terminal.cols } }));
}

function openLink(address) {
  let url;
  try {
    url = new URL(address);
  } catch {
    return;
  }
  if (url.protocol === "http:" || url.protocol === "https:") open(url, "_blank", "noopener,noreferrer");
}

// The terminal makes style elements; the policy lets in those that carry this page's nonce.
function allowStyles() {
  const nonce = document.querySelector("link[nonce]").nonce;
  const create = document.createElement.bind(document);
  document.createElement = (name, options) => {
    const element = create(name, options);
    if (name === "style") element.nonce = nonce;
    return element;
  };
}

show("connecting");
own = await restore();
line.connect();
