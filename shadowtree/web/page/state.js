// The state of the page: one session's rows, grouped into turns, and the choice. Changed here and drawn by `draw`.

const FIRST_ROWS = 400;

const state = {
  session: null,
  sessions: [],
  document: null, // the answer of /api/state
  rows: [],
  total: 0,
  turns: [], // all, by number: those of branches too
  line: [], // what the middle lists: start, the present line, your edits, what is undone
  forks: new Map(), // key of a turn (or "start") to its archived branches
  byMessage: new Map(), // message id to turn
  status: null,
  chosen: null, // key of a turn
  path: null,
  expanded: new Set(),
  follows: false, // whether the next drawing shows where the session stands
  isActing: false,
  agent: "",
  filter: "",
  split: localStorage.getItem("shadowtree-split") === "1",
  keysOn: localStorage.getItem("shadowtree-keys") !== "0",
};

const START = { key: "start", kind: "start", messages: [], text: "Start", state: "active" };
const NOW = { key: "now", kind: "now", messages: [], text: "Your own edits since the last turn", state: "active" };
const details = new Map(); // key of a message's content to the answer of /api/message
const isReadOnly = () => Boolean(state.document && state.document.read_only);
const chosenTurn = () => state.turns.concat(state.line).find((turn) => turn.key === state.chosen) || null;

/** Read the newest rows and where the session stands. */
async function loadSession() {
  const session = state.session;
  const [found, page] = await Promise.all([
    get("/api/state", { session }),
    get("/api/timeline", { session, limit: FIRST_ROWS }),
  ]);
  if (session !== state.session && session !== null) return; // Another one was chosen meanwhile.
  state.document = found;
  state.session = found.session;
  state.total = page.total;
  mergeRows(page.rows);
  regroup();
}

/** Read the older rows, which take longer: an act may have changed any of them. */
async function loadOlderRows() {
  const { session, rows } = state;
  const newest = rows.slice(-FIRST_ROWS);
  const page = await get("/api/timeline", { session, before: newest[0].number });
  if (session !== state.session) return;
  state.rows = [...page.rows, ...state.rows.filter((row) => row.number >= newest[0].number)];
  regroup();
}

/** Put new rows in place of those with the same numbers. */
function mergeRows(rows) {
  const first = rows.length ? rows[0].number : Infinity;
  state.rows = rows.length < state.total ? [...state.rows.filter((row) => row.number < first), ...rows] : rows;
}

/** Group the rows into turns, and find forks and the present line. */
function regroup() {
  const groups = new Map();
  for (const row of state.rows) {
    const key = `${row.branch === null ? "" : row.branch}\n${row.turn}`;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(row);
  }
  state.turns = [...groups].map(([key, rows]) => makeTurn(key, rows));
  state.byMessage = new Map(state.turns.flatMap((turn) => turn.messages.map((row) => [row.id, turn])));
  for (const turn of state.turns) turn.parent = state.byMessage.get(turn.first.parent) || START;
  findForks();
  state.line = makeLine();
}

function makeTurn(key, messages) {
  const [first, last] = [messages[0], messages.at(-1)];
  const marks = new Set(messages.flatMap((row) => row.marks));
  const sum = (name) => messages.reduce((total, row) => total + row[name], 0);
  return {
    key,
    kind: "turn",
    messages,
    first,
    last,
    marks,
    label: messages.length > 1 ? `#${first.number}–${last.number}` : `#${first.number}`, // as in `shadowtree log`
    time: first.time,
    branch: first.branch,
    text: first.text || first.id,
    agent: (messages.find((row) => row.agent) || first).agent,
    state: messages.some((row) => row.state === "open") ? "open" : last.state,
    isPartly: new Set(messages.map((row) => row.state)).size > 1 && last.state === "undone" && !marks.has("out"),
    isHead: messages.some((row) => row.id === state.document.head),
    files: sum("files"),
    steps: sum("steps"),
    unprotected: sum("unprotected"),
  };
}

function findForks() {
  state.forks = new Map();
  for (const branch of state.document.branches.filter((each) => each.state === "archived")) {
    const at = forkOf(branch);
    state.forks.set(at.key, [...(state.forks.get(at.key) || []), branch]);
  }
}

/** The turn after which a branch forks. */
const forkOf = (branch) => state.byMessage.get(branch.fork) || START;

/** The present line with a row for the start and, after the head, one for your own edits since. */
function makeLine() {
  const line = state.turns.filter((turn) => turn.branch === null);
  const isAhead = (turn) => isUndone(turn) && !turn.isPartly;
  const edits = state.status && state.status.session === state.session ? state.status.outside || [] : [];
  const now = edits.length ? [{ ...NOW, files: edits.length, edits }] : [];
  return [START, ...line.filter((turn) => !isAhead(turn)), ...now, ...line.filter(isAhead)].filter(isShown);
}

/** Whether redo can bring a turn back: one that was undone alone keeps its place in the line. */
const isUndone = (turn) => turn.kind === "turn" && turn.state === "undone" && !turn.marks.has("out");
const isOff = (turn) => turn.kind === "turn" && (turn.state === "undone" || turn.state === "archived");

function isShown(turn) {
  if (turn.kind !== "turn") return !state.filter && !state.agent;
  const words = state.filter.toLowerCase();
  const isNamed = () =>
    turn.messages.some((row) => row.text.toLowerCase().includes(words) || row.id.toLowerCase().includes(words));
  return (!state.agent || turn.agent === state.agent) && (!words || isNamed());
}

/** The content of a message never changes once it has ended. */
const detailsKey = (row) => `${state.session}\n${row.id}\n${row.state === "open" ? state.document.number : row.files}`;

/** Return the details of all messages of a turn if they are here; otherwise request them and return null. */
function turnDetails(turn) {
  const found = turn.messages.map((row) => details.get(detailsKey(row)));
  if (found.every((each) => each && !(each instanceof Promise))) return found;
  if (!missing.size) requestAnimationFrame(readMissing);
  missing.add(turn);
  return null;
}

const missing = new Set(); // turns that were drawn without their details

/** Read the details of the turns that are visible by now, once for each message. */
function readMissing() {
  const visibleTurns = [...missing].filter((turn) => turnList.made.has(turn.key));
  missing.clear();
  for (const row of visibleTurns.flatMap((turn) => turn.messages)) readDetails(row).catch(() => {});
}

async function readDetails(row) {
  const key = detailsKey(row);
  if (details.has(key)) return details.get(key);
  const answer = get("/api/message", { id: row.id, session: state.session });
  details.set(key, answer);
  if (details.size > 3000) details.delete(details.keys().next().value);
  try {
    details.set(key, await answer);
    turnList.paintSoon();
  } catch {
    details.delete(key);
  }
  return answer;
}

/** The files of a turn, each path once. */
function turnFiles(found) {
  const files = new Map();
  for (const file of found.flatMap((each) => each.files)) {
    const known = files.get(file.path);
    files.set(file.path, known ? addCounts(known, file) : file);
  }
  return [...files.values()];
}

function addCounts(known, file) {
  return {
    ...file,
    status: known.status === "added" && file.status === "modified" ? "added" : file.status,
    additions: known.additions + file.additions,
    deletions: known.deletions + file.deletions,
  };
}

const fileLetter = (file) => LETTERS[file.status] || "M";
