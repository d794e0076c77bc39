// Which terminal is this tab's own: remembered over a reload, and never shared with a tab that was duplicated from it.

const NAME = "terminal", LOCK_MS = 500;

function newKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function remember(own) {
  try {
    sessionStorage.setItem(NAME, JSON.stringify(own));
  } catch {
    // a frame whose browser keeps nothing: a reload makes a new terminal
  }
}

// Return what this tab has had; something new if it had nothing, or if another tab has it now.
export async function restore() {
  const own = recall();
  return own && (await lock(own.key)) ? own : begin();
}

export async function begin() {
  const fresh = { key: newKey(), process: null };
  await lock(fresh.key);
  remember(fresh);
  return fresh;
}

function recall() {
  try {
    const own = JSON.parse(sessionStorage.getItem(NAME));
    return typeof own?.key === "string" ? own : null;
  } catch {
    return null;
  }
}

// Hold a lock until this tab is gone. A page that is just being reloaded lets go of its own in a moment.
function lock(key) {
  if (!navigator.locks) return Promise.resolve(true);
  return new Promise((resolve) => {
    navigator.locks
      .request(`terminal ${key}`, { signal: AbortSignal.timeout(LOCK_MS) }, () => {
        resolve(true);
        return new Promise(() => {});
      })
      .catch(() => resolve(false));
  });
}
