// A plugin of OpenCode: writes down what happens in each turn, so that whoever comes later can read it.
//
// The server's event stream has no replay, and what was streamed of a turn is lost when the server dies. So each turn
// gets a file of its own, turns/SESSION/PROMPT.jsonl, with one line per event; the same lines are told on stdout with
// their place in the file, for those who read along. A prompt that has a file was accepted: it is never run again.
//
// Only files and stdout: nothing in here reaches the network or holds a secret.
import fs from "node:fs"
import path from "node:path"

const HOME = process.env.HOLDFAST_OPENCODE_HOME
const TURNS = path.join(HOME, "turns")
const OPEN = path.join(HOME, "open") // one file per session with a turn that has not ended: its name
const OUTPUT_CHARACTERS = 30_000
const OUTPUT_EVERY_MS = 150 // a chatty tool tells its whole output each time
const LAST_WORD_MS = 5_000 // after idle, for a message that has not ended by itself
const WAIT_MS = 20_000 // for the turn before, when a prompt comes early
const KEPT_WHOLE = 100 // turns of a session
const LONG_BYTES = 4_096
const REFUSED = "holdfast: refused"

const turns = new Map() // root session -> its newest turn
const parents = new Map() // sub-agent's session -> who started it
const titles = new Map()
const always = new Map() // what people have allowed for good, in the host's words, for as long as this server lives

function tell(note) {
  process.stdout.write(JSON.stringify(note) + "\n")
}

function put(turn, record) {
  const line = Buffer.from(JSON.stringify(record) + "\n")
  const start = turn.size
  try {
    fs.appendFileSync(turn.file, line)
    turn.size += line.length
  } catch (error) {
    turn.size = fs.statSync(turn.file).size // a full disk, say: the reader skips what is no line
    tell({ failed: turn.key, why: String(error) })
    return
  }
  tell({ turn: turn.key, start, end: turn.size, record })
}

function open(session, prompt, message, models) {
  const folder = path.join(TURNS, session)
  const key = `${session}/${prompt}`
  const file = path.join(TURNS, `${key}.jsonl`)
  fs.mkdirSync(folder, { recursive: true, mode: 0o700 })
  fs.mkdirSync(OPEN, { recursive: true, mode: 0o700 })
  if (fs.existsSync(file)) throw new Error(`${REFUSED}: this prompt was accepted before`)
  fs.writeFileSync(path.join(OPEN, session), key, { mode: 0o600 })
  fs.closeSync(fs.openSync(file, "wx", 0o600))
  shorten(folder)
  const turn = { key, file, size: 0, session, last: null, ours: new Set(), parts: new Map(), outputs: new Map(), settled: false }
  turn.over = new Promise((resolve) => (turn.resolve = resolve))
  turns.set(session, turn)
  put(turn, { type: "prompt", message, models, always: always.size ? [...always.values()] : undefined })
}

// Of turns that nobody reads any more, only what they were and how they ended is kept.
function shorten(folder) {
  const names = fs.readdirSync(folder).filter((name) => name.endsWith(".jsonl"))
  if (names.length <= KEPT_WHOLE) return
  const files = names.map((name) => path.join(folder, name)).map((file) => ({ file, stat: fs.statSync(file) }))
  files.sort((one, other) => other.stat.mtimeMs - one.stat.mtimeMs)
  for (const { file, stat } of files.slice(KEPT_WHOLE)) {
    if (stat.size < LONG_BYTES) continue
    const lines = fs.readFileSync(file, "utf8").split("\n")
    const kept = lines.filter((line) => /^\{"type":"(prompt|step|error|ended|settled)"/.test(line))
    fs.writeFileSync(`${file}.new`, kept.join("\n") + "\n", { mode: 0o600 })
    fs.renameSync(`${file}.new`, file)
    fs.utimesSync(file, stat.atime, stat.mtime)
  }
}

function settle(turn, more = {}) {
  if (turn.settled) return
  turn.settled = true
  clearTimeout(turn.timer)
  put(turn, { type: "settled", aborted: fs.existsSync(`${turn.file}.abort`), ...more })
  fs.rmSync(path.join(OPEN, turn.session), { force: true })
  turn.resolve()
}

// Turns that a server left behind when it died: they end here.
function close_old() {
  if (!fs.existsSync(OPEN)) return
  for (const session of fs.readdirSync(OPEN)) {
    const key = fs.readFileSync(path.join(OPEN, session), "utf8")
    const file = path.join(TURNS, `${key}.jsonl`)
    if (fs.existsSync(file)) {
      const text = fs.readFileSync(file, "utf8")
      const turn = { key, file, size: Buffer.byteLength(text), session, resolve() {} }
      if (text && !text.endsWith("\n")) {
        fs.appendFileSync(file, "\n")
        turn.size += 1
      }
      settle(turn, { died: true })
    }
    fs.rmSync(path.join(OPEN, session), { force: true })
  }
}

function idle(turn) {
  // A turn that fails is idle twice, and what is prompted between is lost: only after its last message has ended, or
  // where it was aborted before there was any, is it really over.
  if (turn.last?.ended || fs.existsSync(`${turn.file}.abort`)) settle(turn)
  else turn.timer ??= setTimeout(() => settle(turn, { lost: turn.last === null }), LAST_WORD_MS)
}

function cut(text) {
  return typeof text === "string" && text.length > OUTPUT_CHARACTERS ? text.slice(-OUTPUT_CHARACTERS) : text
}

function message(turn, info) {
  if (info.role !== "assistant") return
  if (!info.summary) turn.ours.add(info.id) // a summary is for the model, and no part of the answer
  const ended = Boolean(info.time?.completed || info.error)
  if (turn.last?.id !== info.id || turn.last.ended !== ended) {
    turn.last = { id: info.id, ended }
    if (ended) put(turn, { type: "ended", finish: info.finish, error: failure(info.error) })
    else clearTimeout(turn.timer), (turn.timer = undefined)
  }
}

function failure(error) {
  return error && { name: error.name, message: cut(error.data?.message), status: error.data?.statusCode }
}

function more_text(turn, id, text) {
  const known = turn.parts.get(id)
  if (!known || !text) return
  known.told += text.length
  put(turn, { type: "delta", part: id, thought: known.thought || undefined, text })
}

function part(turn, part) {
  if (!turn.ours.has(part.messageID)) return // the user's own words
  if (part.type === "text" || part.type === "reasoning") {
    if (part.synthetic || part.ignored) return
    if (!turn.parts.has(part.id)) turn.parts.set(part.id, { told: 0, thought: part.type === "reasoning" })
    more_text(turn, part.id, part.text.slice(turn.parts.get(part.id).told))
  } else if (part.type === "tool") tool(turn, part)
  else if (part.type === "step-start") put(turn, { type: "step", snapshot: Boolean(part.snapshot) })
  else if (part.type === "patch") put(turn, { type: "patch", files: part.files })
  else if (part.type === "retry") put(turn, { type: "retry", attempt: part.attempt, error: failure(part.error) })
}

function tool(turn, part) {
  const state = part.state
  const record = {
    type: "tool",
    id: part.callID,
    name: part.tool,
    state: state.status,
    input: state.input,
    output: cut(state.status === "error" ? state.error : (state.output ?? state.metadata?.output)),
    title: state.title,
    exit: state.metadata?.exit,
  }
  const kept = turn.outputs.get(part.callID) ?? {}
  clearTimeout(kept.timer)
  const now = Date.now()
  const early = state.status === "running" && kept.state === "running" && now - kept.at < OUTPUT_EVERY_MS
  if (early) {
    // the newest is told in a moment, unless something newer comes
    kept.timer = setTimeout(() => !turn.settled && (put(turn, record), (kept.at = Date.now())), OUTPUT_EVERY_MS)
    return
  }
  turn.outputs.set(part.callID, { state: state.status, at: now })
  put(turn, record)
}

// So that an answer which comes too late is known from one to nothing, and what was asked from its id.
function asked(turn, id, record) {
  if (!/^[A-Za-z0-9_]+$/.test(id)) return
  fs.writeFileSync(path.join(TURNS, turn.session, `${id}.asked`), JSON.stringify(record), { mode: 0o600 })
}

// An answer for good is `once` for the server, which would not ask again otherwise, whatever a rule says; the host
// leaves beside the question what it is to be good for.
function replied(turn, id, reply) {
  let lasting
  try {
    if (reply === "once") lasting = JSON.parse(fs.readFileSync(path.join(TURNS, turn.session, `${id}.always`), "utf8"))
  } catch {
    // most answers are for once
  }
  for (const wish of lasting ?? []) always.set(JSON.stringify(wish), wish)
  put(turn, { type: "replied", id, reply, always: lasting })
}

function root(session) {
  for (let depth = 0; parents.has(session) && depth < 20; depth++) session = parents.get(session)
  return session
}

function on_event(event) {
  const told = event.properties ?? {}
  const session = told.sessionID ?? told.info?.sessionID ?? told.part?.sessionID
  if (event.type === "session.created" && told.info?.parentID) parents.set(told.info.id, told.info.parentID)
  const turn = turns.get(root(session))
  if (!turn || turn.settled) return
  if (event.type === "permission.asked") {
    const record = {
      type: "asked",
      id: told.id,
      permission: told.permission,
      patterns: told.patterns,
      metadata: { command: told.metadata?.command, filepath: told.metadata?.filepath, url: told.metadata?.url },
    }
    asked(turn, told.id, record)
    return put(turn, record)
  }
  if (event.type === "permission.replied") return replied(turn, told.requestID, told.reply)
  if (event.type === "question.asked") {
    const record = { type: "question", id: told.id, questions: told.questions }
    asked(turn, told.id, record)
    return put(turn, record)
  }
  if (event.type === "question.replied")
    return put(turn, { type: "answered", id: told.requestID, answers: told.answers })
  if (event.type === "question.rejected") return put(turn, { type: "answered", id: told.requestID, answers: null })
  if (session !== turn.session) return // what a sub-agent does in detail is its own affair
  switch (event.type) {
    case "message.updated":
      return message(turn, told.info)
    case "message.part.updated":
      return part(turn, told.part)
    case "message.part.delta":
      if (told.field === "text" || told.field === "reasoning") more_text(turn, told.partID, told.delta)
      return
    case "session.status":
      if (told.status?.type === "retry")
        put(turn, { type: "retry", attempt: told.status.attempt, message: told.status.message, next: told.status.next })
      return
    case "session.error":
      if (!String(told.error?.data?.message).includes(REFUSED)) put(turn, { type: "error", error: failure(told.error) })
      return
    case "session.updated":
      if (told.info?.title && titles.get(session) !== told.info.title && !told.info.title.startsWith("New session - ")) {
        titles.set(session, told.info.title)
        put(turn, { type: "title", title: told.info.title })
      }
      return
    case "todo.updated":
      return put(turn, { type: "plan", entries: told.todos?.map((one) => ({ text: one.content, status: one.status })) })
    case "session.idle":
      return idle(turn)
  }
}

// Ours carry their name: in a part's metadata, or, for slash commands, in the message's id.
function name_of(input, output) {
  const id = /^msg_[0-9a-f]{12}hf([0-9a-f]{40})$/.exec(input.messageID ?? output.message?.id ?? "")
  if (id) return id[1]
  const named = output.parts.find((one) => /^[0-9a-f]{40}$/.test(one.metadata?.holdfast ?? ""))
  return named?.metadata.holdfast
}

export const Holdfast = async () => {
  if (!globalThis.holdfastRecorder) {
    globalThis.holdfastRecorder = true // a second instance in this server is no second start
    close_old()
    tell({ recorder: "ready" })
  }
  return {
    event: async ({ event }) => on_event(event),
    "chat.message": async (input, output) => {
      const name = name_of(input, output)
      if (!name) return
      try {
        const before = turns.get(input.sessionID)
        if (before && !before.settled) {
          if (before.key === `${input.sessionID}/${name}`) throw new Error(`${REFUSED}: this prompt was accepted before`)
          // What is prompted in a running turn becomes part of it
          await Promise.race([before.over, new Promise((resolve) => setTimeout(resolve, WAIT_MS))])
          if (!before.settled) throw new Error(`${REFUSED}: the turn before is still running`)
        }
        const models = output.parts.find((one) => one.metadata?.holdfast === name)?.metadata.models
        open(input.sessionID, name, output.message.id, models)
      } catch (error) {
        tell({ refused: `${input.sessionID}/${name}`, why: String(error.message ?? error) })
        throw error
      }
    },
    "shell.env": async (_input, output) => {
      // The agent's own surroundings are not those of the commands that it runs
      const home = process.env.HOME ?? "/"
      Object.assign(output.env, {
        XDG_CONFIG_HOME: `${home}/.config`,
        XDG_DATA_HOME: `${home}/.local/share`,
        XDG_STATE_HOME: `${home}/.local/state`,
        XDG_CACHE_HOME: `${home}/.cache`,
        OPENCODE_SERVER_PASSWORD: "",
        OPENCODE_CONFIG_CONTENT: "",
        npm_config_fetch_retries: "2", // as npm has it
      })
    },
  }
}
