// Notes after an act: what happened, and a way back.

const NOTE_MS = 20000;

let lastAct = { session: null, isAwaited: false }; // The act of this page, and whether its update is still to come.

/** Show a note until it is closed or its time is over; one with the mouse or the focus on it stays. */
function note({ title, lines = [], action = null, isBad = false }) {
  const shown = el(
    `div.note${isBad ? ".bad" : ""}`,
    {},
    el(
      "div",
      {},
      el("p", {}, el("strong", {}, title)),
      lines.slice(0, 6).map((line) => el("p", {}, visible(line))),
    ),
    action
      ? button(
          action.label,
          () => {
            shown.remove();
            action.run();
          },
          `.small${action.isBack ? ".back" : ""}`,
        )
      : null,
    el(
      "button.button.quiet.small",
      { type: "button", "aria-label": "Close", onclick: () => shown.remove() },
      icon("close"),
    ),
  );
  $("notes").append(shown);
  while ($("notes").children.length > 3) $("notes").firstChild.remove();
  speak([title, ...lines].join(". "));
  const leave = () => (shown.matches(":hover, :focus-within") ? setTimeout(leave, 2000) : shown.remove());
  setTimeout(leave, NOTE_MS);
}

const noteError = (error) => note({ title: "That did not work", lines: [error.message], isBad: true });

/** Report what an act did, and offer the way back. */
function noteOutcome(ask, outcome) {
  const { back_call: back, complete, notes, skipped } = outcome;
  dropWaysBack();
  const left = complete ? [] : skipped.map(({ path, reason }) => `${path}: ${reason}`);
  note({
    title: complete ? turnsSentence(outcome) || "Done" : "Only a part was done",
    lines: [describeFiles(outcome), ...notes, ...left],
    action: back && { label: "Go back", isBack: true, run: () => askPlan({ title: "Go back to before that?", ...back }) },
    isBad: !complete,
  });
}

/** Something was recorded or undone: if that was not the act of this page, there is no way back to before it. */
function noteUpdate({ session, message }) {
  if (session !== lastAct.session) return;
  if (message || !lastAct.isAwaited) dropWaysBack();
  if (!message) lastAct.isAwaited = false;
}

/** The way back reverses the last act, so no older note may offer it. */
function dropWaysBack() {
  for (const each of $("notes").querySelectorAll(".back")) each.remove();
}

/** "2 turns undone, 1 turn redone", or nothing. */
function turnsSentence(outcome) {
  const [back, forward] = turnCounts(outcome);
  return [back && `${count(back, "turn")} undone`, forward && `${count(forward, "turn")} redone`]
    .filter(Boolean)
    .join(", ");
}

/** How many turns an act undoes, and how many it redoes. */
function turnCounts({ messages, redone }) {
  const forward = new Set(redone);
  return [countTurns(messages.filter((id) => !forward.has(id))), countTurns(redone)];
}

/** How many turns these messages belong to. */
function countTurns(ids) {
  return new Set(ids.map((id) => (state.byMessage.get(id) || { key: id }).key)).size;
}

/** "2 files restored, 1 created, 1 deleted." */
function describeFiles(outcome) {
  const created = new Set(outcome.created);
  const merged = new Set(outcome.merged);
  const restored = outcome.restored.filter((path) => !created.has(path) && !merged.has(path)).length;
  const parts = [
    [restored, "restored"],
    [created.size, "created"],
    [outcome.deleted.length, "deleted"],
    [merged.size, "merged"],
    [outcome.kept.length, "kept as yours"],
  ].filter(([number]) => number);
  if (!parts.length) return "No file changed.";
  return (
    parts
      .map(([number, word], index) => (index ? `${number} ${word}` : `${count(number, "file")} ${word}`))
      .join(", ") + "."
  );
}
