// What the pages of ours share: the bar that says how things are, and the notice with one thing to do.

const WORDS = { connecting: "Connecting…", reconnecting: "Reconnecting…", waking: "Waking…" };
const NOTICES = {
  asleep: ["The sandbox is asleep", "It went to sleep while nobody used it. Its files are safe.", "Wake it up"],
  locked: ["You are locked out", "Your link has expired or was revoked. Ask for a new one.", "Try again"],
  gone: ["The sandbox is gone", "It was destroyed, or it has expired.", null],
};
const find = (id) => document.getElementById(id);
const notice = find("notice"), button = find("notice-button");
let act = null;

export const session = `ses_${location.hostname.match(/--ses-([0-9a-z]+)/)?.[1] ?? ""}`;
find("session").textContent = `${session.slice(0, 8)}…${session.slice(-4)}`;
find("session").title = session;
button.onclick = () => act?.();

// Show how things are; for some states with a notice whose button calls one of the actions, named by the state.
export function show(state, actions = {}) {
  find("dot").dataset.state = state;
  find("status").textContent = WORDS[state] ?? "";
  if (NOTICES[state]) tell(...NOTICES[state], actions[state], true);
  else hush();
}

export function tell(title, text, label, action, covers = false) {
  find("notice-title").textContent = title;
  find("notice-text").textContent = text;
  button.textContent = label ?? "";
  button.hidden = !label || !action;
  act = action;
  notice.toggleAttribute("data-covers", covers);
  notice.hidden = false;
  if (!button.hidden) button.focus({ preventScroll: true });
}

export function hush() {
  notice.hidden = true;
  act = null;
}

// Words from inside the sandbox, made fit for a line of ours: no control characters, none that turn the line around.
export function plain(text, most) {
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, "").trim().slice(0, most);
}
