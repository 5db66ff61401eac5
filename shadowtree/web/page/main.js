// The beginning: find the token, read the session, draw, and follow what happens.

const FIRST_CORNER_MS = 60;
const CORNER_MS = 1200;
const STATS_MS = 15000;
const OLDER_MS = 900;
const QUICKLY_VERIFIED = 2000; // messages
let running = null;
let isStale = false;
let cornerTimer, olderTimer;

/** Draw everything from the state; with `at`, that turn is in the middle. */
function draw(at = null) {
  drawTop();
  drawTimeline(at);
  drawTurns(at);
  drawRedoBar();
}

function drawTop() {
  const { worktree, session } = state.document;
  $("place").textContent = visible(baseName(worktree) || worktree);
  $("place").title = visible(worktree);
  document.title = `${visible(baseName(worktree))} · shadowtree`;
  fillSelect(
    $("sessions"),
    state.sessions.map((each) => [
      each.id,
      each.agent ? `${visible(each.id)} (${visible(each.agent)})` : visible(each.id),
    ]),
    session,
  );
  const agents = [...new Set(state.rows.map((row) => row.agent).filter(Boolean))].sort();
  $("agents").parentElement.hidden = agents.length < 2 && !state.agent;
  fillSelect($("agents"), [["", "All"], ...agents.map((agent) => [agent, visible(agent)])], state.agent);
  $("undo").hidden = isReadOnly();
  $("undo").disabled = !state.document.head && !state.document.open;
}

function fillSelect(select, options, value) {
  const sign = JSON.stringify(options);
  if (select.sign !== sign) select.replaceChildren(...options.map(([id, label]) => el("option", { value: id }, label)));
  select.sign = sign;
  select.value = value;
}

/** Choose a turn and show its diff. */
function choose(key, { from = null, path = null } = {}) {
  const isSame = state.chosen === key && state.path === path;
  state.chosen = key;
  state.path = path;
  turnList.paint();
  laneList.paint();
  laneList.reveal(key);
  if (!state.expanded.has(key)) turnList.reveal(key);
  if (from === "timeline") document.body.dataset.pane === "timeline" && showPane("turns");
  if (!isSame) drawDiff();
}

function chooseFile(turn, path) {
  if (state.chosen === turn.key) {
    state.path = path;
    turnList.paint();
    revealPath();
  } else choose(turn.key, { path });
  showPane("diff");
}

/** On a narrow screen one pane is shown at a time. */
function showPane(name, focus = null) {
  document.body.dataset.pane = name;
  for (const each of $("tabs").children) each.setAttribute("aria-current", String(each.dataset.pane === name));
  for (const list of [turnList, laneList]) list?.paint();
  focus?.focus();
}

// Reading again

/** Read the session again; calls that come meanwhile lead to one more round. */
function refresh() {
  isStale = true;
  running ||= readUntilFresh().finally(() => {
    running = null;
  });
  return running;
}

async function readUntilFresh() {
  while (isStale) {
    isStale = false;
    try {
      const [listed] = await Promise.all([get("/api/sessions"), loadSession()]);
      state.sessions = listed.sessions;
    } catch (error) {
      return showFailure(error);
    }
    await untilReleased();
    const head = state.byMessage.get(state.document.head) || START;
    const isFirst = state.chosen === null || !chosenTurn();
    const wasAtEnd = turnList.isAtEnd();
    if (isFirst || state.follows) state.chosen = head.key;
    draw(isFirst ? head.key : null);
    if (isFirst) performance.mark("shadowtree-drawn");
    if (isFirst || state.follows) showHead(head);
    else if (wasAtEnd) turnList.reveal(state.line.at(-1)?.key);
    state.follows = false;
    refreshChosen();
  }
  clearTimeout(olderTimer);
  const isPart = state.rows.length < state.total;
  if (isPart || state.total > FIRST_ROWS) olderTimer = setTimeout(readOlder, isPart ? 0 : OLDER_MS);
  refreshCorner();
}

async function readOlder() {
  if (!state.rows.length) return;
  await loadOlderRows().catch(() => {}); // The next update tries again.
  await untilReleased();
  const distance = turnList.scroll.scrollHeight - turnList.scroll.scrollTop;
  draw();
  turnList.scroll.scrollTop = turnList.scroll.scrollHeight - distance;
  turnList.paint();
  laneList.reveal(state.chosen, "center");
}

/** Show where the session stands. */
function showHead(head) {
  state.path = null;
  turnList.reveal(state.line[state.line.indexOf(head) + 1]?.key); // what comes after it, such as edits of yours
  turnList.reveal(head.key);
  laneList.reveal(head.key);
  drawDiff();
}

/** Draw the diff again if the chosen turn changed, as an open one does when it ends. */
function refreshChosen() {
  if (diffSign(chosenTurn()) !== drawnSign) drawDiff();
}

/** Draw the corner a little later, once for several updates, because it costs more than the rest. */
function refreshCorner() {
  clearTimeout(cornerTimer);
  cornerTimer = setTimeout(readCorner, state.status ? CORNER_MS : FIRST_CORNER_MS);
}

const editsSign = () => state.status && JSON.stringify([state.status.outside, state.status.changed > 0]);

async function readCorner() {
  clearTimeout(cornerTimer);
  const session = state.session;
  const found = await Promise.all([get("/api/status", { session }), get("/api/unprotected", { session })]).catch(
    () => null,
  );
  await untilReleased();
  if (!found || session !== state.session) return;
  const edits = editsSign();
  state.status = found[0];
  state.unprotected = found[1].unprotected;
  drawUnprotected(state.unprotected);
  if (editsSign() !== edits) {
    const wasAtEnd = turnList.isAtEnd();
    regroup();
    draw();
    if (wasAtEnd) turnList.reveal(state.line.at(-1)?.key);
    refreshChosen();
  }
  if (!state.stats || Date.now() - state.statsTime > STATS_MS) readStats().catch(() => {});
}

/** Measure the store, and verify it once if that is quick; a click on the corner always does. */
async function readStats() {
  state.statsTime = Date.now();
  state.stats = await get("/api/stats");
  drawHealth(state.stats, state.report);
  if (state.report || state.stats.messages > QUICKLY_VERIFIED) return;
  state.report = await get("/api/verify");
  drawHealth(state.stats, state.report);
}

function showFailure(error) {
  if (error.status === 401) return showNoToken();
  setLive("off");
  if (!state.document)
    showBlank(
      el("div.blank", { role: "alert" }, el("h2", {}, "The session could not be read"), visible(error.message)),
    );
}

function showNoToken() {
  setLive("refused");
  const text =
    "Open the address that 'shadowtree ui' printed; it holds the key to this page. If it has ended, start it again.";
  showBlank(el("div.blank", { role: "alert" }, el("h2", {}, "This page has no valid key"), text));
}

const LIVE = { on: "Live", off: "Reconnecting…", refused: "Not connected" };

function setLive(name) {
  $("live").textContent = isReadOnly() ? `${LIVE[name]} · read only` : LIVE[name];
  $("live").className = `live ${name}`;
}

// Controls

function setFilter(text) {
  $("find").value = state.filter = text;
  regroup();
  draw();
  turnList.reveal(state.chosen);
}

function chooseSession(session) {
  sessionStorage.setItem("shadowtree-session", session);
  const empty = { ...state.document, session, head: null, open: null, undone: [], branches: [] };
  Object.assign(state, {
    session,
    document: empty,
    rows: [],
    total: 0,
    status: null,
    chosen: null,
    path: null,
    agent: "",
  });
  state.expanded.clear();
  regroup();
  draw(); // Nothing of the other session can be clicked meanwhile.
  return refresh();
}

const isDark = () =>
  (document.documentElement.dataset.theme ||
    (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";

function drawTheme() {
  const label = isDark() ? "Use light colours" : "Use dark colours";
  $("theme").replaceChildren(icon(isDark() ? "sun" : "moon"));
  setAttributes($("theme"), { "aria-label": label, title: label });
}

function toggleTheme() {
  const theme = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("shadowtree-theme", theme);
  drawTheme();
}

function connectControls() {
  $("sessions").addEventListener("change", (event) => chooseSession(event.target.value));
  $("agents").addEventListener("change", (event) => {
    state.agent = event.target.value;
    setFilter(state.filter);
  });
  $("find").addEventListener("input", (event) => setFilter(event.target.value));
  $("undo").addEventListener("click", () => undoTurns());
  $("theme").addEventListener("click", toggleTheme);
  $("help").addEventListener("click", openHelp);
  $("health").addEventListener("click", openHealth);
  $("unprotected").addEventListener("click", openUnprotected);
  $("tabs").addEventListener("click", (event) => event.target.dataset.pane && showPane(event.target.dataset.pane));
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    turnList.focus(state.chosen);
  });
  connectPointer();
  document.addEventListener("keydown", onKey);
  document.addEventListener("pointerdown", (event) => event.target.closest(".menu") || closeMenu());
  addEventListener("focus", () => state.document && refreshCorner());
  addEventListener("hashchange", () => {
    takeToken();
    location.reload();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawTheme);
  setInterval(() => {
    for (const each of document.querySelectorAll("time")) each.textContent = age(each.dateTime);
  }, 30000);
}

/** Something was recorded or undone, here or elsewhere; null: the connection is new. */
function onUpdate(update) {
  const isElsewhere = update && update.session === state.session && !state.isActing;
  if (update) noteUpdate(update);
  if (isElsewhere && update.kind !== "begin")
    speak(update.message ? "A turn was recorded" : `Done elsewhere: ${update.kind}`);
  refresh();
}

async function start() {
  const theme = localStorage.getItem("shadowtree-theme");
  if (theme) document.documentElement.dataset.theme = theme;
  takeToken();
  makeTimeline();
  makeTurns();
  makeDiff();
  drawTheme();
  connectControls();
  showPane("turns");
  drawHealth(null, null);
  if (!hasToken()) return showNoToken();
  state.session = sessionStorage.getItem("shadowtree-session");
  await refresh();
  if (state.session !== null && !state.sessions.some((each) => each.id === state.session)) {
    state.session = null; // That session is gone; the last one is shown.
    await refresh();
  }
  if (state.document) follow({ after: () => state.document.number, onUpdate, onState: setLive });
}

start();
