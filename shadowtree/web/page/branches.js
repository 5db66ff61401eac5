// The branch view: the branches of one point, their turns after the fork, and the way to them.

/** Open the branches that fork after a turn; `name` is the one to begin with, `key` a turn to point out. */
function openBranches(turn, name = null, key = null) {
  const branches = state.forks.get(turn.key) || [];
  if (!branches.length) return note({ title: "No branches from here" });
  let chosen = Math.max(
    0,
    branches.findIndex((branch) => branch.name === name),
  );
  const tabs = el("div.branch-tabs", { role: "tablist", "aria-label": "Branches" });
  const panel = el("div", { role: "tabpanel", id: "branch-panel", "aria-labelledby": "branch-tab" });
  const from = turn.kind === "start" ? "the start" : nameOf(turn);
  const { dialog, content, footer } = openDialog({
    title: `Branches from ${from}`,
    about: "Turns that were undone before the session went on. Nothing in them is lost.",
    body: [panel],
    isLarge: true,
    foot: [],
  });
  content.before(tabs);
  const show = (index, isFocused) => {
    chosen = (index + branches.length) % branches.length;
    tabs.replaceChildren(
      ...branches.map((branch, place) => branchTab(branch, place === chosen, () => show(place, true))),
    );
    tabs.children[chosen].id = "branch-tab";
    panel.replaceChildren(...drawBranch(dialog, branches[chosen], key));
    footer.replaceChildren(...branchFoot(dialog, branches[chosen], chosen, branches.length));
    if (isFocused) tabs.children[chosen].focus();
  };
  dialog.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    show(chosen + step, true);
  });
  show(chosen, true);
}

/** Open the branch that a turn is archived on. */
function openBranchOf(turn) {
  const branch = state.document.branches.find((each) => each.name === turn.branch);
  openBranches(forkOf(branch), turn.branch, turn.key);
}

function branchTab(branch, isChosen, onclick) {
  return el(
    "button",
    {
      type: "button",
      role: "tab",
      "aria-selected": String(isChosen),
      "aria-controls": "branch-panel",
      tabindex: isChosen ? 0 : -1,
      title: visible(branch.name),
      onclick,
    },
    el("span", {}, visible(branch.name)),
    el("span.badge", {}, String(branch.turns.length)),
  );
}

function drawBranch(dialog, branch, key) {
  const about = el(
    "h3",
    {},
    `${count(branch.turns.length, "turn")}, ${count(branch.files, "file")}, left `,
    timeText(branch.time),
    " ago",
  );
  return [about, ...branch.turns.map((turn) => branchTurn(dialog, turn, key))];
}

function branchTurn(dialog, { messages, text }, key) {
  const known = state.byMessage.get(messages[0]);
  const facts = known
    ? [known.agent && visible(known.agent), `${age(known.time)} ago`, count(known.files, "file")]
        .filter(Boolean)
        .join(" · ")
    : count(messages.length, "message");
  const row = el(
    "div.branch-turn",
    {},
    el("span.muted", {}, known ? known.label : ""),
    el("div", {}, el("p", { title: visible(text) }, firstLine(text || messages[0])), el("p", {}, facts)),
    known && forkMark(known, () => dialog.close()),
    known && button("Diff", () => showDiffOf(dialog, known), ".small"),
    isReadOnly()
      ? null
      : button(
          "Redo to here",
          () =>
            leaveFor(dialog, {
              title: `Redo to ${known ? known.label : ""} ${firstLine(text || messages[0])}?`,
              route: "/api/switch",
              body: { ref: messages.at(-1) },
            }),
          ".small",
        ),
  );
  row.classList.toggle("chosen", Boolean(known) && known.key === key);
  return row;
}

function showDiffOf(dialog, turn) {
  dialog.close();
  choose(turn.key);
  showPane("diff", $("diff-files"));
}

function branchFoot(dialog, branch, index, total) {
  const place = el(
    "span.muted.grow",
    {},
    total > 1 ? `Branch ${index + 1} of ${total}. Use ← and → to go through them.` : "",
  );
  if (isReadOnly()) return [place];
  const last = branch.turns.at(-1).messages.at(-1);
  return [
    place,
    button(
      "Redo entire branch",
      () =>
        leaveFor(dialog, {
          title: `Redo the branch ${visible(branch.name)}?`,
          note: "What it leaves becomes a branch.",
          route: "/api/switch",
          body: { ref: last },
        }),
      ".primary",
    ),
  ];
}

function leaveFor(dialog, ask) {
  dialog.close();
  askPlan(ask);
}
