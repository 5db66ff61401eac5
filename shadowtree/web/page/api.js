// The server: the token, requests, and the stream of events.

const TOKEN_KEY = "shadowtree-token";

/** A request that was refused; `body` is the server's answer. */
class Refused extends Error {
  constructor(status, body) {
    super(body.message || `the server answered ${status}`);
    this.status = status;
    this.body = body;
  }
}

/** Take the token out of the address into this tab's memory, and out of the history. */
function takeToken() {
  const token = location.hash.slice(1);
  if (!token) return;
  sessionStorage.setItem(TOKEN_KEY, token);
  history.replaceState(null, "", location.pathname);
}

const hasToken = () => Boolean(sessionStorage.getItem(TOKEN_KEY));

function request(path, options = {}) {
  const headers = { Authorization: `Bearer ${sessionStorage.getItem(TOKEN_KEY) || ""}`, ...options.headers };
  return fetch(path, { cache: "no-store", ...options, headers });
}

/** Encode a value for a query. Bytes of names that are not UTF-8 arrive as U+DC80 to U+DCFF and leave as bytes. */
function encode(value) {
  return String(value).replace(/[\udc80-\udcff]|[\ud800-\udbff][\udc00-\udfff]|[^\ud800-\udfff]+/g, (part) =>
    part.length === 1 && part >= "\udc80" && part <= "\udcff"
      ? "%" + (part.charCodeAt(0) - 0xdc00).toString(16)
      : encodeURIComponent(part),
  );
}

/** Add a query; a list becomes several values of one name. */
function query(path, values) {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== null);
  const pairs = given.flatMap(([name, value]) => [value].flat().map((each) => [name, each]));
  return path + (pairs.length ? "?" + pairs.map(([name, value]) => `${name}=${encode(value)}`).join("&") : "");
}

/** Read a route. */
async function get(path, values = {}) {
  return readAnswer(await request(query(path, values)));
}

/** Plan or do an act. */
async function post(path, body) {
  const headers = { "Content-Type": "application/json" };
  return readAnswer(await request(path, { method: "POST", headers, body: JSON.stringify(body) }));
}

/** Read a file as of a message, as a blob. */
async function getFile(ref, path) {
  const answer = await request(query("/api/file", { ref, path, session: state.session }));
  if (!answer.ok) throw new Refused(answer.status, await answer.json().catch(() => ({})));
  return answer.blob();
}

async function readAnswer(answer) {
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, body);
  return body;
}

/** Follow the events forever, from update `after` on. Calls `onUpdate` for each, and for each new connection.
 *
 * A hidden tab hangs up: browsers allow six connections to one server, for all tabs together.
 */
async function follow({ after, onUpdate, onState }) {
  for (let wait = 250; ; wait = Math.min(wait * 2, 4000)) {
    await whenVisible();
    const hangUp = new AbortController();
    document.addEventListener("visibilitychange", () => hangUp.abort(), { signal: hangUp.signal });
    try {
      const answer = await request(query("/api/events", { after: after() }), { signal: hangUp.signal });
      if (!answer.ok) throw new Refused(answer.status, {});
      onState("on");
      wait = 250;
      await readEvents(answer.body.getReader(), onUpdate);
    } catch (error) {
      if (error.status === 401) return onState("refused");
    }
    onState("off");
    await (document.hidden ? whenVisible() : new Promise((resolve) => setTimeout(resolve, wait)));
    onUpdate(null);
  }
}

/** Wait until this tab is visible. */
function whenVisible() {
  if (!document.hidden) return null;
  return new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
}

/** Read server-sent events until the stream ends. */
async function readEvents(reader, onUpdate) {
  const decoder = new TextDecoder();
  for (let rest = ""; ;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = blocks.pop();
    blocks
      .map(parseEvent)
      .filter((event) => event.name === "update")
      .forEach((event) => onUpdate(event.data));
  }
}

function parseEvent(block) {
  const event = { name: "message", data: null };
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) event.name = line.slice(7);
    if (line.startsWith("data: ")) event.data = JSON.parse(line.slice(6));
  }
  return event;
}
