// The timeline on the left: a lane for each branch, the present line in the first.

const LANE = 14;
const ROW = 30;
const MOST_LANES = 6;
let laneList;
let lanes; // see layLanes

function makeTimeline() {
  $("timeline").append(el("h2.pane-title", {}, "Timeline"));
  laneList = new VirtualList($("timeline"), { label: "Timeline", height: ROW, draw: drawLaneRow, sign: laneSign });
}

function drawTimeline(at) {
  const turns = [START, ...state.turns];
  lanes = layLanes(turns);
  laneList.show(turns, at);
}

/** Decide which lane each branch has; what a row draws follows from that when it is drawn.
 *
 *     ●      start            lane 0 is the present line
 *     ●─╮    fork             a branch's lane begins at the row it forks from
 *     │ ○    branch           and is free again after its last row
 *     ●      head
 */
function layLanes(turns) {
  const places = new Map(turns.map((turn, index) => [turn.key, index]));
  const spans = branchSpans(turns, places);
  const ends = [Infinity];
  for (const span of [...spans.values()].sort((a, b) => a.from - b.from || a.to - b.to)) {
    let lane = ends.findIndex((end) => end < span.from);
    if (lane < 0) lane = ends.length;
    ends[lane] = span.to;
    span.lane = Math.min(lane, MOST_LANES - 1);
  }
  const most = Math.max(0, ...[...spans.values()].map((span) => span.lane));
  return {
    turns,
    places,
    spans,
    width: x(most) + 12,
    last: turns.findLastIndex((turn) => !turn.branch),
    head: turns.findLastIndex((turn) => !turn.branch && !isUndone(turn)),
  };
}

/** From which row to which each branch reaches. */
function branchSpans(turns, places) {
  const spans = new Map();
  turns.forEach((turn, index) => {
    if (!turn.branch) return;
    const span = spans.get(turn.branch);
    if (span) span.to = index;
    else spans.set(turn.branch, { from: Math.min(places.get(turn.parent.key) ?? 0, index - 1), to: index });
  });
  return spans;
}

const laneOf = (turn) => (turn.branch ? lanes.spans.get(turn.branch).lane : 0);
const x = (lane) => 12 + lane * LANE;

/** The pieces of lines in one row. */
function lanePaths(turn) {
  const index = lanes.places.get(turn.key);
  const middle = ROW / 2;
  const paths = [];
  if (index > 0 && index <= lanes.last)
    paths.push({ kind: index > lanes.head ? "current undone" : "current", d: `M${x(0)} 0V${middle}` });
  if (index < lanes.last)
    paths.push({ kind: index >= lanes.head ? "current undone" : "current", d: `M${x(0)} ${middle}V${ROW}` });
  for (const { from, to, lane } of lanes.spans.values()) {
    const parent = x(laneOf(lanes.turns[from]));
    if (index === from)
      paths.push({ kind: "", d: `M${parent} ${middle}C${parent} ${ROW} ${x(lane)} ${middle} ${x(lane)} ${ROW}` });
    else if (index > from && index <= to) paths.push({ kind: "", d: `M${x(lane)} 0V${index === to ? middle : ROW}` });
  }
  return paths;
}

function laneSign(turn) {
  const isChosen = state.chosen === turn.key;
  return JSON.stringify([
    lanePaths(turn),
    lanes.width,
    turn.text,
    turn.state,
    turn.isHead,
    isChosen,
    forkCount(turn),
    isShown(turn),
  ]);
}

const forkCount = (turn) => (state.forks.get(turn.key) || []).length;

function drawLaneRow(turn) {
  const picture = svg("svg", { class: "lanes", width: lanes.width, "aria-hidden": "true" });
  picture.append(...lanePaths(turn).map(({ kind, d }) => svg("path", { d, class: kind })));
  picture.append(svg("circle", { cx: x(laneOf(turn)), cy: ROW / 2, r: 4, class: dotKind(turn) }));
  const label = el(
    "button.lane-label",
    {
      type: "button",
      "data-part": "main",
      tabindex: state.chosen === turn.key ? 0 : -1,
      "aria-current": String(state.chosen === turn.key),
      "aria-label": laneName(turn),
      title: firstLine(turn.text),
      onclick: () => chooseFromTimeline(turn),
    },
    turn.kind === "start" ? null : el("i", {}, turn.label),
    turn.kind === "start" ? "Start" : firstLine(turn.text),
  );
  const row = el(
    "div.lane-row",
    { oncontextmenu: (event) => openTurnMenu(event, turn) },
    picture,
    label,
    forkMark(turn),
  );
  row.classList.toggle("off", isOff(turn) || !isShown(turn));
  row.classList.toggle("chosen", state.chosen === turn.key);
  return row;
}

function dotKind(turn) {
  if (turn.isHead || (turn.kind === "start" && !state.document.head)) return "head";
  if (turn.branch) return "";
  return isOff(turn) ? "undone" : "current";
}

function laneName(turn) {
  if (turn.kind === "start") return "Start";
  const where = turn.branch
    ? `, branch ${visible(turn.branch)}`
    : turn.isHead
      ? ", current"
      : turn.state === "undone"
        ? ", undone"
        : "";
  return `${turn.label}${where}: ${firstLine(turn.text)}`;
}

/** The mark of a fork, with the number of branches, which opens the branch view. */
function forkMark(turn, before = () => {}) {
  const branches = state.forks.get(turn.key);
  if (!branches) return null;
  const name = `${count(branches.length, "branch", "branches")} from here`;
  return el(
    "button.badge.fork",
    {
      type: "button",
      "data-part": "fork",
      title: name,
      "aria-label": name,
      onclick: () => (before(), openBranches(turn)),
    },
    icon("fork"),
    String(branches.length),
  );
}

/** A turn of the line is chosen; one of a branch opens there. */
function chooseFromTimeline(turn) {
  if (turn.branch) openBranchOf(turn);
  else choose(turn.key, { from: "timeline" });
}
