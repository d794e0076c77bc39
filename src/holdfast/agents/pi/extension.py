"""Our extension of pi, which makes it ask for permissions; pi itself never asks. Pi loads it from its own directory.

The extension decides by the thread's rules itself, so that an allowed tool does not wait for a daemon that is away. A
question is written as a dialog, and its answer as a notice: both are in pi's output, in order.
"""

import json
from collections.abc import Sequence

from holdfast.agents.permissions import Action, Rule
from holdfast.agents.pi.mapper import ASKED, CLOSED, OPTIONS

_SOURCE = r"""
import { homedir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const RULES = %(rules)s;
const OPTIONS = %(options)s;

// As Python's fnmatchcase has it: * ? [set] [!set], and the whole text must match.
export function matcher(glob) {
  let out = "";
  for (let i = 0; i < glob.length; i++) {
    const c = glob[i];
    if (c === "*") out += "[^]*";
    else if (c === "?") out += "[^]";
    else if (c === "[") {
      let j = i + 1;
      if (glob[j] === "!") j++;
      if (glob[j] === "]") j++;
      while (j < glob.length && glob[j] !== "]") j++;
      if (j >= glob.length) { out += "\\["; continue; }
      const negated = glob[i + 1] === "!";
      const set = glob.slice(i + (negated ? 2 : 1), j).replace(/[\\\]\[^]/g, "\\$&");
      out += `[${negated ? "^" : ""}${set}]`;
      i = j;
    } else out += c.replace(/[\\^$.|?*+()\[\]{}\/-]/g, "\\$&");
  }
  return new RegExp(`^(?:${out})$`);
}

// The file that pi itself would take: rules must not be walked around by another way to write it.
export function place(path, cwd) {
  let plain = path.replace(/[\u00A0\u2000-\u200A\u202F\u205F\u3000]/g, " ");
  if (plain.startsWith("@")) plain = plain.slice(1);
  if (plain === "~") plain = homedir();
  else if (plain.startsWith("~/")) plain = join(homedir(), plain.slice(2));
  else if (plain.startsWith("file://")) plain = fileURLToPath(plain);
  return resolve(cwd, plain);
}

const KINDS = {
  bash: ["bash", (input) => input.command],
  powershell: ["bash", (input) => input.command],
  read: ["read", (input, cwd) => input.path && place(input.path, cwd)],
  edit: ["edit", (input, cwd) => input.path && place(input.path, cwd)],
  write: ["edit", (input, cwd) => input.path && place(input.path, cwd)],
  grep: ["search", (input) => input.pattern],
  find: ["search", (input) => input.pattern],
  ls: ["search", (input, cwd) => place(input.path ?? ".", cwd)],
};

export function described(name, input, cwd) {
  const [kind, argument] = KINDS[name] ?? ["other", () => name];
  return [kind, String(argument(input ?? {}, cwd) ?? "")];
}

// As ``permissions.shown`` has it.
export function shown(argument) {
  const hidden = argument.length - 4000;
  if (hidden <= 0) return argument;
  return `${argument.slice(0, 3000)} … (${hidden} characters are not shown) … ${argument.slice(-1000)}`;
}

const rules = RULES.map(([action, tool, argument]) => ({ action, tool: matcher(tool), argument: matcher(argument) }));

const always = new Set(); // rules that were answered for good, each for one kind of tool: `ask *` is about many

export function decide(kind, argument) {
  return rules.find((rule) => rule.tool.test(kind) && rule.argument.test(argument));
}

export default function (pi) {
  pi.on("tool_call", async (event, ctx) => {
    const [kind, argument] = described(event.toolName, event.input, ctx.cwd ?? process.cwd());
    const rule = decide(kind, argument);
    const wish = JSON.stringify([rules.indexOf(rule), kind]);
    if (!rule || rule.action === "allow" || (rule.action === "ask" && always.has(wish))) return undefined;
    if (rule.action === "deny") return { block: true, reason: "Not allowed here, by the rules of this conversation." };
    const call = event.toolCallId;
    const about = { call, tool: kind, text: `May I use ${kind}: ${shown(argument)}` };
    const answer = await ctx.ui.select(%(asked)s + JSON.stringify(about), OPTIONS, { signal: ctx.signal });
    ctx.ui.notify(%(closed)s + JSON.stringify({ call, answer: answer ?? "deny" }));
    if (answer === "allow_always") always.add(wish);
    if (answer === "allow" || answer === "allow_always") return undefined;
    const said = answer && answer !== "deny" ? ` The user says: ${answer}` : "";
    return { block: true, reason: `The user does not allow this.${said}` };
  });
}
"""


def needed(rules: Sequence[Rule]) -> bool:
    return any(rule.action is not Action.ALLOW for rule in rules)


def source(rules: Sequence[Rule]) -> str:
    """Return the extension for these rules, as JavaScript."""
    return _SOURCE.lstrip() % {
        "rules": json.dumps([[rule.action.value, rule.tool, rule.argument] for rule in rules]),
        "options": json.dumps([option["id"] for option in OPTIONS]),
        "asked": json.dumps(ASKED),
        "closed": json.dumps(CLOSED),
    }
