// The turns in the middle: the prompt, agent and files of each, and the acts on it.

const TURN_HEIGHT = 86;
let turnList;

function makeTurns() {
  turnList = new VirtualList($("turns"), {
    label: "Turns",
    height: TURN_HEIGHT,
    draw: drawTurn,
    sign: turnSign,
    isTall: (turn) => state.expanded.has(turn.key),
  });
}

function drawTurns(at) {
  turnList.show(state.line, at);
  const isBare = state.line.every((turn) => turn.kind === "start");
  showBlank(isBare ? blankTurns() : null);
}

/** Say why there are no turns, above the list; null: there are some. */
function showBlank(blank) {
  $("turns").querySelector(".blank")?.remove();
  if (blank) $("turns").prepend(blank);
}

function blankTurns() {
  if (state.filter || state.agent)
    return el("div.blank", {}, el("h2", {}, "No turn matches"), "Change the filter above to see more.");
  return el(
    "div.blank",
    {},
    el("h2", {}, "Nothing is recorded yet"),
    "Turns appear here as soon as an agent works in this directory.",
  );
}

function turnSign(turn) {
  const here = turn.kind === "turn" ? turnDetails(turn) : null;
  const rows = turn.messages.map((row) => [row.state, row.files, row.steps, row.text, row.marks]);
  const isChosen = state.chosen === turn.key;
  const edits = turn.kind === "now" ? [turn.edits, turnActions(turn).length] : 0;
  return JSON.stringify([
    turn.label,
    rows,
    turn.isHead,
    turn.agent,
    isChosen,
    isChosen && state.path,
    state.expanded.has(turn.key),
    forkCount(turn),
    Boolean(here),
    isReadOnly(),
    edits,
    canGo(turn),
  ]);
}

/** Draw one turn. Its details arrive later; then it is drawn again. */
function drawTurn(turn) {
  const found = turn.kind === "turn" ? turnDetails(turn) : null;
  const isOpen = state.expanded.has(turn.key);
  const card = el(
    "div.turn",
    {
      oncontextmenu: (event) => openTurnMenu(event, turn),
      onclick: (event) => event.target.closest("button, a, input") || choose(turn.key),
    },
    el("div.turn-head", {}, foldButton(turn, isOpen), titleButton(turn)),
    el("div.turn-facts", {}, el("span.few", {}, turnFacts(turn)), turnActs(turn)),
    turn.kind === "start" ? null : el("div.turn-files", {}, fileSummary(turn, found)),
    isOpen ? drawMore(turn, found) : null,
  );
  card.classList.toggle("off", isOff(turn));
  card.classList.toggle("bare", turn.kind === "start");
  card.classList.toggle("chosen", state.chosen === turn.key);
  return card;
}

function foldButton(turn, isOpen) {
  if (turn.kind !== "turn") return null;
  return el(
    "button.button.quiet.fold",
    {
      type: "button",
      "data-part": "fold",
      tabindex: state.chosen === turn.key ? 0 : -1,
      "aria-expanded": String(isOpen),
      "aria-label": `Text, files and steps of ${turn.label}`,
      onclick: () => toggleExpanded(turn),
    },
    icon("fold"),
  );
}

function titleButton(turn) {
  const isChosen = state.chosen === turn.key;
  const isFirst = !chosenTurn() && turn === state.line[0];
  const text = turn.kind === "turn" ? firstLine(turn.text) : turn.text;
  return el(
    "button.turn-text",
    {
      type: "button",
      "data-part": "main",
      tabindex: isChosen || isFirst ? 0 : -1,
      "aria-current": String(isChosen),
      title: text,
      dir: "auto",
      onclick: () => choose(turn.key),
    },
    text,
  );
}

/** The buttons that appear when the mouse or the focus is on a turn. */
function turnActs(turn) {
  const acts = turnActions(turn).filter((each) => each.isShort);
  return el(
    "span.turn-acts",
    {},
    acts.map(({ label, run }, index) =>
      button(label, run, ".small", { "data-part": `act${index}`, tabindex: state.chosen === turn.key ? 0 : -1 }),
    ),
  );
}

function turnFacts(turn) {
  if (turn.kind === "start") return [el("span", {}, "Before the first turn"), forkMark(turn)];
  if (turn.kind === "now") return [el("span", {}, "Not part of any turn")];
  return [
    el("span", {}, turn.label),
    turn.isHead ? el("span.badge.head", {}, "current") : null,
    forkMark(turn), // first, because the buttons cover what is at the end
    turn.agent ? el("span.badge", {}, visible(turn.agent)) : null,
    timeText(turn.time),
    turnBadges(turn),
  ].flat();
}

/** Kinds of badges, each with a function that returns its text for a turn, if it has one. */
const BADGES = [
  ["open", (turn) => turn.state === "open" && "at work"],
  ["undone", undoneText],
  ["warn", (turn) => turn.marks.has("edited") && "your edits before it"],
  ["warn", (turn) => turn.marks.has("inferred") && !turn.marks.has("burst") && "end inferred"],
  ["plain", (turn) => turn.marks.has("burst") && "unannounced"],
  ["plain", (turn) => turn.marks.has("partly_reverted") && "partly reverted"],
  ["plain", (turn) => turn.marks.has("pinned") && "pinned"],
  ["warn", (turn) => turn.unprotected > 0 && `${turn.unprotected} not protected`],
];

function undoneText(turn) {
  if (turn.marks.has("out")) return "undone alone";
  if (turn.isPartly) return "partly undone";
  return turn.state === "undone" && "undone";
}

function turnBadges(turn) {
  const said = BADGES.map(([kind, say]) => [kind, say(turn)]).filter(([, text]) => text);
  return said.map(([kind, text]) => el(`span.badge.${kind}`, {}, text));
}

/** The third line: letters, names and counts of the first files. */
function fileSummary(turn, found) {
  if (turn.kind === "now") return listFew(turn.edits);
  if (!turn.files) return [el("span", {}, turn.state === "open" ? "No end yet" : "No file changed")];
  if (!found) return [el("span", {}, count(turn.files, "file"))];
  const files = turnFiles(found);
  const total = files.reduce(
    (sum, file) => ({
      additions: sum.additions + (file.additions || 0),
      deletions: sum.deletions + (file.deletions || 0),
    }),
    { additions: 0, deletions: 0 },
  );
  return [...listFew(files), ...counts(total), turn.steps ? el("span", {}, count(turn.steps, "step")) : null];
}

function listFew(files) {
  const few = files
    .slice(0, 2)
    .flatMap((file) => [
      letter(fileLetter(file)),
      el("bdi.path", { title: visible(file.path) }, visible(baseName(file.path))),
    ]);
  return [...few, files.length > 2 ? el("span", {}, `+${files.length - 2} more`) : null].filter(Boolean);
}

const baseName = (path) => path.slice(path.lastIndexOf("/") + 1);

/** The part that folds out: the whole text, the files, and the steps of each message. */
function drawMore(turn, found) {
  if (!found) return el("div.turn-more", {}, el("p.muted", {}, "Loading…"));
  return el(
    "div.turn-more",
    {},
    found.map((each) => drawMessage(turn, each, found.length > 1)),
  );
}

function drawMessage(turn, { message, files, steps }, isOneOfMany) {
  const isLonger = isOneOfMany || firstLine(message.text) !== visibleLines(message.text).trim();
  const said = () =>
    el("div.turn-said", { tabindex: 0, role: "group", "aria-label": "Text", dir: "auto" }, visibleLines(message.text));
  return el(
    "div",
    {},
    isOneOfMany ? messageTitle(message) : null,
    message.text && isLonger ? said() : null,
    part(count(files.length, "file"), files, (file) => fileLine(turn, file)),
    part(count(steps.length, "step"), steps, (step) => stepLine(message, step)),
    part("Changed, but not protected", message.unprotected, unprotectedLine),
    part("Not recorded", message.skipped, ({ path, reason }) =>
      el("div.file-line", {}, pathText(path), el("span.muted", {}, visible(reason))),
    ),
  );
}

/** A list with a title, or nothing if it is empty. */
const part = (title, items, draw) => (items.length ? [el("h3", {}, title), ...items.map(draw)] : null);

const unprotectedLine = (path) =>
  el("div.file-line", {}, pathText(path), el("span.grow"), protectButton(path));

function messageTitle(message) {
  const role = message.role ? ` (${visible(message.role)}) ` : " ";
  const only = button("Undo only this message", () => undoOnly(message), ".small", {
    "data-part": `only-${message.number}`,
  });
  return el("h3", {}, `Message #${message.number}`, role, canUndoOnly(message) && message.files > 0 ? only : null);
}

function fileLine(turn, file) {
  const isChosen = state.chosen === turn.key && state.path === file.path;
  return el(
    "button.file-line",
    {
      type: "button",
      "data-part": `file-${file.path.length > 40 ? "" : encodeURIComponent(file.path.toWellFormed())}`,
      "aria-current": String(isChosen),
      onclick: () => chooseFile(turn, file.path),
    },
    letter(fileLetter(file)),
    pathText(file.path),
    el("span.grow"),
    counts(file),
  );
}

/** One step, with its files; you can go back to before it. */
function stepLine(message, step) {
  const act =
    isReadOnly() || message.state !== "active" || !step.files?.length
      ? null
      : button("Undo only this step", () => undoStep(message, step.step), ".small.quiet", { "data-part": "step" });
  return el(
    "div",
    {},
    el(
      "div.step-line",
      {},
      el("span.path", {}, visible(step.step)),
      step.inferred ? el("span.badge.warn", {}, "end inferred") : null,
      el("span.grow"),
      el("span.muted", {}, step.files ? count(step.files.length, "file") : "at work"),
      act,
    ),
    el(
      "div.step-files",
      {},
      (step.files || [])
        .slice(0, 20)
        .map((file) => el("div.file-line", {}, letter(fileLetter(file)), pathText(file.path))),
    ),
  );
}

function toggleExpanded(turn) {
  if (!state.expanded.delete(turn.key)) state.expanded.add(turn.key);
  turnList.paint();
}

// The redo bar

function drawRedoBar() {
  const undone = state.document ? state.document.undone : [];
  const bar = $("redo");
  bar.hidden = !undone.length;
  const [first] = undone;
  const next = first && state.byMessage.get(first.messages[0]);
  const nextName = first && (next ? nameOf(next) : firstLine(first.text || first.messages[0]));
  const sign = JSON.stringify([undone.length, nextName]);
  if (bar.sign === sign) return; // A button that has the focus keeps it.
  bar.sign = sign;
  if (!first) return bar.replaceChildren();
  bar.replaceChildren(
    el(
      "p",
      {},
      el("strong", {}, `${count(undone.length, "turn")} undone`),
      el("span.muted", {}, `  Next: ${nextName}`),
    ),
    el("span.grow"),
    ...(isReadOnly()
      ? []
      : [
          button([icon("forward"), "Redo next"], () => redoTurns(1), undone.length > 1 ? "" : ".primary"),
          undone.length > 1 ? button("Redo all", () => redoTurns(null), ".primary") : "",
        ]),
  );
}
