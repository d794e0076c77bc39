// A plugin of OpenCode: says that a model has failed and is asked again, for which ACP has no word.
//
// It is said as a piece of the answer, since that is what everybody passes on; whoever reads the answer knows it.
const text = "holdfast: the model is asked again"
const update = { sessionUpdate: "agent_message_chunk", content: { type: "text", text } }

function tell(sessionId) {
  process.stdout.write(JSON.stringify({ jsonrpc: "2.0", method: "session/update", params: { sessionId, update } }) + "\n")
}

export const Retries = async () => ({
  event: async ({ event }) => {
    const { sessionID, status } = event.properties ?? {}
    if (event.type !== "session.status" || status?.type !== "retry") return
    // What was said before goes a longer way than this, and what is said anew comes only when it is asked again.
    setTimeout(() => tell(sessionID), Math.min(1000, Math.max(0, (status.next - Date.now()) / 2)))
  },
})
