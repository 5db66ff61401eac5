// The diff on the right: unified or side by side, words marked, unchanged parts folded, pictures before and after.

const ROWS_AT_ONCE = 1500; // of one file
const ROWS_SHOWN = 4000; // of all files together; more are drawn on demand
const LONG_LINE = 2000;
const HUGE_CONTEXT = 1000000;
const MOST_PATHS = 60; // that fit into an address
let diffAsked = 0;
let drawnSign = null;
let pictures = [];

function makeDiff() {
  $("diff").append(
    el("div.diff-tools", {}, el("h2", { id: "diff-title" }, "Diff"), el("span.grow"), splitSwitch()),
    el("div.diff-scroll", { id: "diff-files", tabindex: 0, role: "region", "aria-labelledby": "diff-title" }),
  );
}

function splitSwitch() {
  const choose = (split) =>
    el(
      "button",
      {
        type: "button",
        "data-split": String(split),
        "aria-pressed": String(state.split === split),
        onclick: () => setSplit(split),
      },
      split ? "Side by side" : "Unified",
    );
  return el("span.segments", { role: "group", "aria-label": "How to show the diff" }, choose(false), choose(true));
}

function setSplit(split) {
  state.split = split;
  localStorage.setItem("shadowtree-split", split ? "1" : "0");
  for (const each of $("diff").querySelectorAll("[data-split]"))
    each.setAttribute("aria-pressed", String(each.dataset.split === String(split)));
  drawDiff();
}

/** What to compare for a turn, as a query; null if there is nothing. */
async function diffQuery(turn) {
  const session = state.session;
  if (!turn || turn.kind === "start") return null;
  if (turn.kind === "now") return { session };
  const changing = turn.messages.filter((row) => row.files > 0);
  if (!changing.length) return null;
  if (changing.length === 1) return { session, message: changing[0].id };
  const paths = turnFiles(await Promise.all(changing.map(readDetails))).flatMap((file) =>
    [file.path, file.renamed_from || []].flat(),
  );
  return { session, a: `${changing[0].id}^`, b: changing.at(-1).id, path: paths.length < MOST_PATHS ? paths : null };
}

/** A text that changes when the diff of a turn has to be read again. */
function diffSign(turn) {
  return (
    turn &&
    JSON.stringify([
      state.session,
      turn.key,
      turn.kind === "now" && turn.edits,
      turn.messages.map((row) => [row.id, row.files, row.state === "open"]),
    ])
  );
}

/** Read and draw the diff of the chosen turn. An answer that comes too late is dropped. */
async function drawDiff() {
  const asked = ++diffAsked;
  const turn = chosenTurn();
  const place = $("diff-files");
  drawnSign = diffSign(turn);
  $("diff-title").textContent = diffTitle(turn);
  place.ariaBusy = "true"; // What is below the title is still that of another turn.
  const wanted = await diffQuery(turn).catch(() => null);
  if (asked !== diffAsked) return;
  if (!wanted) return showDiff(place, [el("div.blank", {}, whyNoDiff(turn))]);
  try {
    const { files } = await get("/api/diff", wanted);
    const saved = turn.kind === "now" ? await readSavedEdits(turn, files) : null;
    if (asked !== diffAsked) return;
    showDiff(place, [
      ...(files.length || !saved ? drawFiles(turn, wanted, files) : []),
      ...(saved ? drawSavedEdits(turn, saved) : []),
    ]);
    revealPath();
  } catch (error) {
    if (asked === diffAsked)
      showDiff(place, [el("div.blank", {}, el("h2", {}, "The diff could not be read"), visible(error.message))]);
  }
}

/** Read the edits of yours that an undo or redo has saved since: they no longer differ from the last record. */
async function readSavedEdits(turn, files) {
  const shown = new Set(files.map((file) => file.path));
  const paths = turn.edits.map((edit) => edit.path).filter((path) => !shown.has(path));
  const last = state.rows.at(-1);
  if (!paths.length || !last) return null;
  const wanted = { session: state.session, a: last.id, path: paths.length < MOST_PATHS ? paths : null };
  const answer = await get("/api/diff", wanted);
  return { wanted, files: answer.files.filter((file) => paths.includes(file.path)) };
}

/** Draw saved edits without a button: what "as the last turn left it" means depends on the acts since. */
function drawSavedEdits(turn, { wanted, files }) {
  const about = "These edits were saved with your last undo or redo, and are still in your files:";
  return [el("p.file-note", {}, about), ...listAll(files, (file) => drawFile(null, wanted, file, true))];
}

function whyNoDiff(turn) {
  if (!turn || turn.kind === "start") return "Choose a turn to see what it changed.";
  return turn.state === "open"
    ? "This turn is at work. Its changes are shown when it ends."
    : "This turn changed no file.";
}

function showDiff(place, nodes) {
  pictures.forEach(URL.revokeObjectURL);
  pictures = [];
  place.replaceChildren(...nodes);
  place.ariaBusy = "false";
}

function diffTitle(turn) {
  if (!turn || turn.kind === "start") return "Diff";
  return turn.kind === "now" ? NOW.text : nameOf(turn);
}

function drawFiles(turn, wanted, files) {
  if (!files.length) return [el("div.blank", {}, "Nothing differs.")];
  let rows = 0;
  return listAll(files, (file) => {
    rows += file.patch ? file.patch.length / 40 : 1;
    return drawFile(turn, wanted, file, rows < ROWS_SHOWN);
  });
}

function drawFile(turn, wanted, file, isDrawn) {
  const body = el("div.file-body");
  const fill = () => body.replaceChildren(...drawBody(turn, wanted, file));
  if (isDrawn) fill();
  else body.append(el("p.file-note", {}, button("Show this diff", fill)));
  const name = file.renamed_from
    ? el("span", {}, pathText(file.renamed_from), " → ", pathText(file.path))
    : pathText(file.path);
  const section = el(
    "section.file",
    { "aria-label": visible(file.path) },
    el(
      "div.file-head",
      {},
      letter(fileLetter(file)),
      el("h3", {}, name),
      counts(file),
      el("span.grow"),
      restoreButton(turn, file),
    ),
    body,
  );
  section.path = file.path;
  return section;
}

/** Restore this file alone, as it was before the turn or after it. Where it was not there, that deletes it. */
function restoreButton(turn, file) {
  if (isReadOnly() || !turn) return null;
  const open = (event) => openMenu(event, turn.kind === "now" ? [discardItem(file)] : restoreItems(turn, file));
  return button("Restore file", open, ".small", { "aria-haspopup": "menu" });
}

function discardItem(file) {
  const isNew = file.status === "added";
  return restoreItem(file, {
    label: isNew ? "Delete this new file" : "Discard my edits of this file",
    note: isNew ? "You added it after the last turn." : "As the last turn left it.",
    ref: state.document.tree,
    isGone: isNew,
  });
}

function restoreItems(turn, file) {
  const [isAdded, isDeleted] = [file.status === "added", file.status === "deleted"];
  return [
    restoreItem(file, {
      label: isAdded ? "Delete it, as before this turn" : "As it was before this turn",
      note: isAdded ? `It was not there before ${turn.label}.` : `As it was before ${turn.label}.`,
      ref: `${turn.messages[0].id}^`,
      isGone: isAdded,
    }),
    restoreItem(file, {
      label: isDeleted ? "Delete it, as after this turn" : "As it was after this turn",
      note: isDeleted ? `${turn.label} deleted it.` : `As it was after ${turn.label}.`,
      ref: turn.messages.at(-1).id,
      isGone: isDeleted,
    }),
  ];
}

function restoreItem(file, { label, note, ref, isGone }) {
  const title = `${isGone ? "Delete" : "Restore"} ${visible(file.path)}?`;
  const paths = [file.path, file.renamed_from].filter(Boolean);
  return { label, run: () => askPlan({ title, note, route: "/api/restore", body: { ref, paths } }) };
}

function drawBody(turn, wanted, file) {
  if (file.image) return [drawPictures(turn, file)];
  if (file.cut) return [lateBody(wanted, file)];
  if (file.too_large) return [el("p.file-note", {}, "This file is too large to compare.")];
  if (file.binary) return [el("p.file-note", {}, "This is a binary file.")];
  const hunks = parsePatch(file.patch);
  if (!hunks.length)
    return [
      el(
        "p.file-note",
        {},
        file.renamed_from
          ? "Renamed, with the same content."
          : "Only permission bits or the kind of the file changed, or it is empty.",
      ),
    ];
  return [drawTable(wanted, file, hunks)];
}

/** A diff that was too long to come with the others. */
function lateBody(wanted, file) {
  const load = async () => {
    const found = await readWhole(wanted, file, 3);
    const hunks = parsePatch(found.patch);
    place.replaceChildren(
      hunks.length ? drawTable(wanted, found, hunks) : el("p.file-note", {}, "This file is too large to compare."),
    );
  };
  const place = el(
    "div",
    {},
    el(
      "p.file-note",
      {},
      button("Load this diff", () => load().catch(noteError)),
    ),
  );
  return place;
}

async function readWhole(wanted, file, context) {
  const { files } = await get("/api/diff", { ...wanted, path: file.path, context });
  return files.find((each) => each.path === file.path) || files[0];
}

// From a patch to rows

/** Parse a unified diff into hunks of rows: {sign, old, now, text}. */
function parsePatch(patch) {
  const hunks = [];
  let old = 0,
    now = 0;
  for (const line of (patch || "").split("\n")) {
    const header = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@ ?(.*)/.exec(line);
    if (header) {
      [old, now] = [Number(header[1]), Number(header[2])];
      hunks.push({ about: header[3], rows: [] });
    } else if (!hunks.length || line === "") continue;
    else if (line[0] === "\\") hunks.at(-1).rows.push({ sign: "\\", old: null, now: null, text: line.slice(2) });
    else if ("+- ".includes(line[0])) {
      const row = {
        sign: line[0],
        old: line[0] === "+" ? null : old++,
        now: line[0] === "-" ? null : now++,
        text: line.slice(1),
      };
      hunks.at(-1).rows.push(row);
    }
  }
  for (const hunk of hunks) markWords(hunk.rows);
  return hunks;
}

/** Mark the words that differ in each run of deleted lines that is followed by added ones. */
function markWords(rows) {
  for (let at = 0; at < rows.length;) {
    const [gone, come] = changeAt(rows, at);
    for (let index = 0; index < Math.min(gone.length, come.length); index++) {
      const [a, b] = [gone[index], come[index]];
      if (a.text.length > LONG_LINE || b.text.length > LONG_LINE) continue;
      const found = differingWords(a.text, b.text);
      if (found) [a.marks, b.marks] = found;
    }
    at += gone.length + come.length || 1;
  }
}

/** The deleted and the added rows that begin at an index. */
function changeAt(rows, at) {
  const isOf = (sign) => (row) => row.sign === sign || row.sign === "\\";
  const run = (from, sign) => {
    let to = from;
    while (to < rows.length && isOf(sign)(rows[to]) && (rows[to].sign !== "\\" || to > from)) to++;
    return rows.slice(from, to);
  };
  const gone = run(at, "-");
  return [gone, run(at + gone.length, "+")];
}

// From rows to a table

function drawTable(wanted, file, hunks) {
  const body = el("tbody");
  const painter = { old: makeTokenizer(languageOf(file.path)), now: makeTokenizer(languageOf(file.path)) };
  const widths = state.split ? ["n", "s", "", "n", "s", ""] : ["n", "n", "s", ""];
  const table = el(
    `table.code${state.split ? ".split" : ""}`,
    { "aria-label": `Changes of ${visible(file.path)}` },
    el(
      "colgroup",
      {},
      widths.map((kind) => el("col", { class: kind || null })),
    ),
    body,
  );
  let end = 0;
  hunks.forEach((hunk, index) => {
    const start = startOf(hunk);
    if (start - end > 1 || (index === 0 && start > 1)) body.append(foldRow(wanted, file, end + 1, start - 1));
    appendRows(body, hunk.rows, painter);
    end = endOf(hunk);
  });
  if (file.status === "modified" && hunks.at(-1).rows.at(-1).sign === " ")
    body.append(foldRow(wanted, file, end + 1, null));
  return table;
}

const startOf = (hunk) => Math.max(1, (hunk.rows.find((row) => row.now !== null) || { now: 1 }).now);
const endOf = (hunk) => (hunk.rows.findLast((row) => row.now !== null) || { now: 0 }).now;

function appendRows(body, rows, painter) {
  const draw = state.split ? splitRows : unifiedRows;
  body.append(...draw(rows.slice(0, ROWS_AT_ONCE), painter));
  const rest = rows.slice(ROWS_AT_ONCE);
  if (!rest.length) return;
  const more = foldWith(`Show ${count(Math.min(rest.length, ROWS_AT_ONCE), "more line")} of ${rest.length}`, () => {
    const next = el("tbody");
    appendRows(next, rest, painter);
    more.replaceWith(...next.childNodes);
  });
  body.append(more);
}

function foldWith(label, onclick) {
  return el(
    "tr.fold",
    {},
    el("td", { colspan: state.split ? 6 : 4 }, el("button.link", { type: "button", onclick }, label)),
  );
}

/** Unchanged lines that are folded; a click reads the whole file and shows them. */
function foldRow(wanted, file, from, to) {
  const label = to === null ? "Show the unchanged lines below" : `Show ${count(to - from + 1, "unchanged line")}`;
  const unfold = async () => {
    const whole = await readWhole(wanted, file, HUGE_CONTEXT);
    const all = parsePatch(whole.patch).flatMap((hunk) => hunk.rows);
    const isHere = (line) => line.sign === " " && line.now >= from && (to === null || line.now <= to);
    const body = el("tbody");
    appendRows(body, all.filter(isHere), { old: () => [], now: makeTokenizer(languageOf(file.path)) });
    row.replaceWith(...body.childNodes);
  };
  const row = foldWith(label, () => unfold().catch(noteError));
  return row;
}

const KINDS = { "+": "add", "-": "del", " ": null, "\\": null };
const SIGNS = { "+": "+", "-": "−", " ": "", "\\": "" };

function codeCell(row, painter, kind) {
  if (row.sign === "\\") return el("td.c.muted", {}, row.text);
  row.tokens ||= readTokens(row, painter); // Side by side, an unchanged line is drawn twice.
  const text = row.sign === " " ? row.text.replace(/\r$/, "") : row.text;
  return el(`td.c${kind ? "." + kind : ""}`, {}, paintLine(text, row.tokens, row.marks || []));
}

/** The colours of a line. Unchanged lines are read on both sides, which may be in different comments. */
function readTokens(row, painter) {
  if (row.text.length > LONG_LINE) return [];
  if (row.sign === " ") painter.old(row.text);
  return (row.sign === "-" ? painter.old : painter.now)(row.text);
}

const numberCell = (number, kind) => el(`td.n${kind ? "." + kind : ""}`, {}, number === null ? "" : String(number));
const signCell = (row, kind) => el(`td.s${kind ? "." + kind : ""}`, {}, SIGNS[row.sign]);

function unifiedRows(rows, painter) {
  return rows.map((row) =>
    el(
      `tr${KINDS[row.sign] ? "." + KINDS[row.sign] : ""}`,
      {},
      numberCell(row.old),
      numberCell(row.now),
      signCell(row),
      codeCell(row, painter),
    ),
  );
}

/** Deleted lines on the left, next to added ones on the right. */
function splitRows(rows, painter) {
  const made = [];
  for (let at = 0; at < rows.length;) {
    const [gone, come] = changeAt(rows, at);
    if (!gone.length && !come.length) {
      made.push(splitRow(rows[at], rows[at], painter));
      at++;
      continue;
    }
    for (let index = 0; index < Math.max(gone.length, come.length); index++)
      made.push(splitRow(gone[index], come[index], painter));
    at += gone.length + come.length;
  }
  return made;
}

function splitRow(left, right, painter) {
  const half = (row, number) => {
    if (!row) return [el("td.n.none"), el("td.s.none"), el("td.c.none")];
    const kind = KINDS[row.sign];
    return [numberCell(number, kind), signCell(row, kind), codeCell(row, painter, kind)];
  };
  return el("tr", {}, half(left, left && left.old), half(right, right && right.now));
}

// Pictures

function drawPictures(turn, file) {
  const [first, last] = [turn.messages[0], turn.messages.at(-1)];
  const before =
    file.status === "added" && !file.renamed_from
      ? null
      : { ref: turn.kind === "now" ? state.document.tree : `${first.id}^`, path: file.renamed_from || file.path };
  const after = file.status === "deleted" || turn.kind === "now" ? null : { ref: last.id, path: file.path }; // Edits of yours are not recorded yet.
  const whyNone = turn.kind === "now" && file.status !== "deleted" ? "Not recorded yet" : "Deleted";
  return el("div.pictures", {}, drawPicture("Before", before, "Not there"), drawPicture("After", after, whyNone));
}

function drawPicture(label, source, whyNone) {
  const figure = el("figure", {}, el("figcaption", {}, label));
  if (!source) figure.append(el("p.muted", {}, whyNone));
  else
    getFile(source.ref, source.path).then(
      (blob) => {
        const address = URL.createObjectURL(blob);
        pictures.push(address);
        figure.append(el("img", { src: address, alt: `${label}: ${visible(source.path)}` }));
        figure.firstChild.append(`, ${sizeText(blob.size)}`);
      },
      (error) => figure.append(el("p.muted", {}, visible(error.message))),
    );
  return figure;
}

/** Scroll to the chosen file. */
function revealPath() {
  const place = $("diff-files");
  const section = state.path && [...place.children].find((each) => each.path === state.path);
  place.scrollTop = section ? section.offsetTop - place.offsetTop - 12 : 0;
}
