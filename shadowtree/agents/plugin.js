// Records each turn with shadowtree, so that `shadowtree undo` can undo it.
// Written by `shadowtree hooks install @AGENT@`; `shadowtree hooks uninstall @AGENT@` removes it.
// It needs no library, and nothing in it throws: a turn that cannot be recorded goes on all the same.
import { spawn } from "node:child_process"

const PROGRAM = "@PROGRAM@"
const AGENT = "@AGENT@"
const READING = new Set(["@READING@"])
const PATHS = ["filePath", "file_path", "path", "patchText", "patch"]
const LIMIT_MS = 30_000
const MOST_TEXT = 20_000

const attempt = (work) => async (...given) => {
  try {
    await work(...given)
  } catch {}
}

const run = (words, cwd, input) =>
  new Promise((done) => {
    try {
      const child = spawn(PROGRAM, words, { cwd, stdio: ["pipe", "pipe", "ignore"] })
      let answer = ""
      const timer = setTimeout(() => {
        child.kill()
        done(null)
      }, LIMIT_MS)
      const finish = () => {
        clearTimeout(timer)
        try {
          done(JSON.parse(answer))
        } catch {
          done(null)
        }
      }
      child.on("error", finish)
      child.on("close", finish)
      child.stdout.on("data", (part) => (answer += part))
      child.stdin.on("error", () => {})
      child.stdin.end(JSON.stringify(input))
    } catch {
      done(null)
    }
  })

export const Shadowtree = async ({ directory, client } = {}) => {
  const own = Symbol.for(`shadowtree ${directory}`)
  // With this file in two places, every event comes twice.
  if (!directory || globalThis[own]) return {}
  globalThis[own] = true

  const sessions = new Set()
  const parents = new Map() // of sub-agents
  const commands = new Map() // the slash command that a session's next message is of
  const reverted = new Map() // where the agent's own undo has gone back to
  let last = Promise.resolve() // one after the other

  const call = (words, input) => (last = last.then(() => run(words, directory, input)))
  const report = (hook, payload, more) => call(["hook", AGENT], { hook, directory, payload, ...more })
  const findRoot = (session) => {
    for (let depth = 0; parents.has(session) && depth < 20; depth++) session = parents.get(session)
    return session
  }

  const reportStep = (hook, { tool, sessionID, callID }, args) => {
    if (READING.has(tool)) return
    const written = {}
    for (const key of PATHS) if (typeof args?.[key] === "string") written[key] = args[key]
    return report(hook, { input: { tool, sessionID: findRoot(sessionID), callID, args: written } })
  }

  const follow = ({ id, revert }) => {
    const to = revert?.messageID ?? null
    if ((reverted.get(id) ?? null) === to) return
    to === null ? reverted.delete(id) : reverted.set(id, to)
    call(["hooks", "follow", AGENT], { directory, session: id, revert: to })
  }

  const onEvent = {
    "session.created": ({ info }) => {
      if (info.parentID) parents.set(info.id, info.parentID)
      else report("session.created", { properties: { sessionID: info.id } })
    },
    "session.idle": ({ sessionID }) => {
      if (!parents.has(sessionID)) report("session.idle", { properties: { sessionID } })
    },
    "session.updated": ({ info }) => follow(info),
    // What was undone is left for good: that is no redo.
    "message.removed": ({ sessionID }) => reverted.delete(sessionID),
  }

  return {
    event: attempt(async ({ event }) => onEvent[event.type]?.(event.properties)),

    "command.execute.before": attempt(async ({ command, sessionID }) => commands.set(sessionID, command)),

    "chat.message": attempt(async (input, output) => {
      const { message, parts } = output
      const sessionID = input.sessionID ?? message.sessionID
      if (parents.has(sessionID)) return
      sessions.add(sessionID)
      reverted.delete(sessionID)
      const command = commands.get(sessionID)
      commands.delete(sessionID)
      const texts = parts
        .filter((part) => part.type === "text" && !part.synthetic)
        .map((part) => ({ type: "text", text: part.text.slice(0, MOST_TEXT) }))
      const payload = { input: { sessionID }, output: { message: { id: message.id }, parts: texts } }
      const answer = await report("chat.message", payload, command && { command })
      if (answer?.additionalContext) {
        const id = `${parts.at(-1)?.id ?? "prt_"}shadowtree`
        const text = answer.additionalContext
        parts.push({ id, sessionID, messageID: message.id, type: "text", text, synthetic: true })
      }
      if (answer?.systemMessage) {
        const body = { title: "shadowtree", message: answer.systemMessage, variant: "info" }
        Promise.resolve(client?.tui?.showToast({ body })).catch(() => {})
      }
    }),

    "tool.execute.before": attempt((input, output) => reportStep("tool.execute.before", input, output.args)),

    "tool.execute.after": attempt((input) => reportStep("tool.execute.after", input, input.args)),

    dispose: attempt(async () => {
      for (const sessionID of sessions) report("dispose", { input: { sessionID } })
      await last
      delete globalThis[own]
    }),
  }
}
