// The WebSocket of a page of ours, which comes and goes while the page stays.
//
// When it is cut we ask, in the background, what became of the session: a sleeping one is not woken by that. Only
// wake(), which a person causes, does. States: connecting, connected, reconnecting, asleep, waking, locked, gone, and
// failed (with what the other end said), ended.

const SOCKET = "/.holdfast/socket", STATE = "/.holdfast/state", WAKE = "/.holdfast/wake";
const FIRST_MS = 200, MOST_MS = 4000, OPEN_MS = 20_000, ASK_MS = 15_000, WAKE_MS = 150_000;
const PASSES = new Set(["asleep", "sandbox_lost"]); // it is going to sleep, or being found again
const LOCKED = new Set([401, 403]), GONE = new Set([404, 410]), BROKEN = 409;

export class Connection {
  #socket = null;
  #timer = 0;
  #opening = 0;
  #delay = FIRST_MS;
  #heardAt = 0;
  #failed = null;
  state = "connecting";
  wasWoken = false; // by a person, here; until we are connected
  isWanted = true; // by a person, who has just opened the page or pressed a button; until we are connected

  // query(): what the socket is opened with. onState(state, detail), onWords(object), onBytes(ArrayBuffer).
  // silentMs: the other end says something this often; one that does not is gone.
  constructor({ query, onState, onWords, onBytes, silentMs = 0 }) {
    Object.assign(this, { query, onState, onWords, onBytes });
    if (silentMs) setInterval(() => this.#lookAlive(silentMs), silentMs / 4);
    addEventListener("online", () => this.#hurry());
    document.addEventListener("visibilitychange", () => document.hidden || this.#hurry());
  }

  connect() {
    clearTimeout(this.#timer);
    this.#drop();
    this.#failed = null;
    const address = new URL(SOCKET, location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    address.search = new URLSearchParams(this.query());
    const socket = this.#socket = new WebSocket(address);
    socket.binaryType = "arraybuffer";
    socket.onmessage = ({ data }) => this.#heard(data);
    socket.onclose = () => this.#closed();
    this.#opening = setTimeout(() => socket.readyState === WebSocket.CONNECTING && this.#closed(), OPEN_MS);
  }

  // The other end has said what it needs to: we are there.
  connected() {
    this.#delay = FIRST_MS;
    this.wasWoken = this.isWanted = false;
    this.#say("connected");
  }

  // The program has ended: no more is to come.
  ended(detail) {
    this.#drop();
    this.#say("ended", detail);
  }

  get raw() {
    return this.#socket;
  }

  // Give the socket away: to who speaks another protocol on it, and tells us of its end by lost().
  lost() {
    this.#closed();
  }

  send(data) {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(data);
  }

  // A person tries once more.
  again() {
    this.isWanted = true;
    this.state = "connecting";
    this.connect();
  }

  async wake() {
    this.wasWoken = this.isWanted = true;
    this.#say("waking");
    const found = await ask(WAKE, "POST", WAKE_MS);
    if (found.ok) this.connect();
    else this.#judge(found);
  }

  #heard(data) {
    this.#heardAt = performance.now();
    if (typeof data !== "string") {
      this.onBytes(data);
      return;
    }
    const words = JSON.parse(data);
    if (words.error) this.#failed = words.error;
    else if (!words.alive) this.onWords(words);
  }

  async #closed() {
    this.#drop();
    if (this.state === "connected") this.#say("reconnecting");
    const found = await ask(STATE, "GET", ASK_MS);
    if (this.#socket === null) this.#judge(found);
  }

  #judge({ ok, status, code, message }) {
    if (code === "asleep") this.#say("asleep");
    else if (LOCKED.has(status)) this.#say("locked");
    else if (GONE.has(status)) this.#say("gone");
    else if (status === BROKEN) this.#say("failed", { code, message });
    else if (ok && this.#failed && !PASSES.has(this.#failed.code)) this.#say("failed", this.#failed);
    else this.#retry();
  }

  #retry() {
    if (this.state !== "connecting" && this.state !== "waking") this.#say("reconnecting");
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.connect(), this.#delay * (0.8 + Math.random() * 0.4));
    this.#delay = Math.min(this.#delay * 2, MOST_MS);
  }

  // Somebody looks at the page, or the network is back: do not wait any longer.
  async #hurry() {
    if (this.state === "reconnecting" && this.#socket === null) this.connect();
    else if (this.state === "asleep" && (await ask(STATE, "GET", ASK_MS)).ok && this.state === "asleep") this.connect();
  }

  #lookAlive(silentMs) {
    if (this.state === "connected" && performance.now() - this.#heardAt > silentMs) this.#closed();
  }

  #drop() {
    clearTimeout(this.#opening);
    const socket = this.#socket;
    this.#socket = null;
    if (socket === null) return;
    socket.onmessage = socket.onclose = null;
    socket.close();
  }

  #say(state, detail) {
    this.state = state;
    this.onState(state, detail);
  }
}

async function ask(path, method, ms) {
  try {
    const answer = await fetch(path, { method, cache: "no-store", signal: AbortSignal.timeout(ms) });
    const told = await answer.json().catch(() => ({}));
    return { ok: answer.ok, status: answer.status, code: told.error?.code, message: told.error?.message };
  } catch {
    return { ok: false, status: 0 }; // nobody is there
  }
}
