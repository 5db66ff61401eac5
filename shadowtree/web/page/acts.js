// What can be done with a turn: for its buttons, its menu and the keys. Each act shows its plan first.

const canUndoOnly = (row) => !isReadOnly() && row.state === "active" && !hasMark(row, "out");
const hasMark = (row, name) => (row.marks ? row.marks.includes(name) : Boolean(row[name]));

/** Whether going to a turn would change anything. */
function canGo(turn) {
  if (isReadOnly() || turn.kind === "now" || turn.state === "open") return false;
  if (turn.kind === "start") return Boolean(state.document.head);
  return turn.last.id !== state.document.head && !turn.marks.has("out");
}

/** The acts on a turn, for its buttons, its menu and the keys. */
function turnActions(turn) {
  const acts = [];
  const forks = state.forks.get(turn.key) || [];
  if (canGo(turn))
    acts.push({
      label: isUndone(turn) || turn.branch ? "Redo to here" : "Restore to here",
      key: "Enter",
      isShort: true,
      run: () => goTo(turn),
    });
  if (turn.kind === "now" && !isReadOnly() && state.status.changed)
    acts.push({ label: "Discard these edits", key: "", isShort: true, run: discardEdits });
  if (turn.kind === "turn") {
    const single = turn.messages.filter((row) => canUndoOnly(row) && row.files > 0);
    for (const row of single) {
      const isAlone = single.length === 1;
      acts.push({
        label: isAlone ? "Undo only this" : `Undo only message #${row.number}`,
        key: isAlone ? "o" : "",
        isShort: isAlone,
        run: () => undoOnly(row),
      });
    }
    if (!isOff(turn) && !isReadOnly())
      acts.push({ label: "Undo this and all later turns", key: "", run: () => undoFrom(turn) });
  }
  if (forks.length)
    acts.push({
      label: `Show ${count(forks.length, "branch", "branches")} from here`,
      key: "b",
      run: () => openBranches(turn),
    });
  if (turn.kind === "turn")
    acts.push({
      label: "Copy the message id",
      key: "",
      run: () =>
        navigator.clipboard?.writeText(turn.last.id).then(
          () => speak("Copied"),
          () => {},
        ),
    });
  return acts;
}

const nameOf = (turn) => `${turn.label} ${firstLine(turn.text)}`;

/** A name as the end of a question. */
const asQuestion = (name) => `${name.replace(/[\s.,:;!?]+$/, "")}?`;

function goTo(turn) {
  if (turn.kind === "start")
    return askPlan({
      title: "Restore to the start?",
      route: "/api/revert",
      body: { message: state.turns.find((each) => !each.branch).first.id },
    });
  const verb = isUndone(turn) || turn.branch ? "Redo" : "Restore";
  return askPlan({ title: asQuestion(`${verb} to ${nameOf(turn)}`), route: "/api/switch", body: { ref: turn.last.id } });
}

function discardEdits() {
  return askPlan({
    title: "Discard your own edits?",
    note: "All files as they were last recorded.",
    route: "/api/restore",
    body: { ref: state.document.tree },
  });
}

function undoOnly(row) {
  return askPlan({
    title: asQuestion(`Undo only #${row.number} ${firstLine(row.text || row.id)}`),
    note: "Later turns stay as they are.",
    route: "/api/revert",
    body: { message: row.id, only: true },
  });
}

function undoStep(message, step) {
  return askPlan({
    title: `Undo only the step ${visible(step)}?`,
    note: "Everything else stays as it is.",
    route: "/api/revert",
    body: { message: message.id, step, only: true },
  });
}

function undoFrom(turn) {
  return askPlan({
    title: `Undo ${nameOf(turn)} and all later turns?`,
    route: "/api/revert",
    body: { message: turn.first.id },
  });
}

function undoTurns(turns = 1) {
  return askPlan({
    title: turns === 1 ? "Undo the last turn?" : `Undo the last ${turns} turns?`,
    route: "/api/undo",
    body: { turns },
  });
}

function redoTurns(turns) {
  return askPlan({
    title: turns === null ? "Redo all undone turns?" : "Redo the next turn?",
    route: "/api/redo",
    body: { turns },
  });
}
