// Dialogs: the store's health, what is not protected, and the keys. The plan of an act is in plan.js.

/** Open a dialog. `foot` are its buttons; Escape and Cancel close it. */
function openDialog({ title, about = "", body, foot = [], isLarge = false, onClose = () => {} }) {
  const heading = el("h2", { tabindex: -1, id: `title-${Math.random().toString(36).slice(2)}` }, title);
  const aboutLine = el("p", {}, about);
  const content = el("div.dialog-body", { tabindex: 0, role: "region", "aria-labelledby": heading.id }, body);
  const footer = el("div.dialog-foot", {}, foot);
  const close = el(
    "button.button.quiet.small",
    { type: "button", "aria-label": "Close", onclick: () => dialog.close() },
    icon("close"),
  );
  const dialog = el(
    `dialog${isLarge ? ".large" : ""}`,
    { "aria-labelledby": heading.id },
    el("div.dialog-head", {}, el("div.grow", {}, heading, aboutLine), close),
    content,
    footer,
  );
  dialog.addEventListener("close", () => {
    dialog.remove();
    onClose();
    restoreFocus();
  });
  dialog.addEventListener("pointerdown", (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  dialog.showModal();
  heading.focus();
  return { dialog, heading, aboutLine, content, footer };
}

/** Focus the chosen turn, if the browser could not give the focus back because its element was redrawn. */
function restoreFocus() {
  if (document.activeElement === document.body && !document.querySelector("dialog[open]")) turnList.focus(state.chosen);
}

// The store, and what is not protected

function drawHealth(stats, report) {
  const health = $("health");
  const word = report ? (report.ok ? "healthy" : count(report.problems.length, "problem")) : "";
  health.textContent = ["Store", stats ? sizeText(stats.store_bytes) : "", word].filter(Boolean).join(" · ");
  health.classList.toggle("minus", Boolean(report && !report.ok));
}

/** Show the figures, and verify the store. */
async function openHealth() {
  const result = el("p", { role: "status" }, "Verifying the store…");
  const figures = el("dl.facts");
  openDialog({
    title: "The store",
    body: [result, el("h3", {}, "Figures"), figures],
    foot: [
      el("span.grow"),
      el("span.muted", {}, visible(state.document.version ? `shadowtree ${state.document.version}` : "")),
    ],
  });
  try {
    const stats = await get("/api/stats");
    const rows = [
      ["Directory", visible(stats.worktree)],
      ["Store", visible(stats.store)],
      [
        "Size",
        stats.budget_bytes
          ? `${sizeText(stats.store_bytes)} of ${sizeText(stats.budget_bytes)}`
          : sizeText(stats.store_bytes),
      ],
      ["Messages", stats.messages.toLocaleString("en")],
      ["Sessions", String(stats.sessions)],
      ["gc would free", sizeText(stats.free_bytes || 0)],
    ];
    figures.append(...rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
    const report = await get("/api/verify");
    drawHealth(stats, report);
    if (report.ok) result.textContent = "The store is healthy: everything recorded can be restored.";
    else
      result.replaceWith(
        el(
          "div",
          {},
          el("p.notice.bad", {}, `${count(report.problems.length, "problem")} found. Run 'shadowtree check --repair'.`),
          report.problems.slice(0, 50).map((each) => el("p", {}, visible(each.message))),
        ),
      );
  } catch (error) {
    result.textContent = visible(error.message);
  }
}

function drawUnprotected(paths) {
  $("unprotected").hidden = !paths.length;
  $("unprotected").textContent = `${count(paths.length, "file")} not protected`;
}

function openUnprotected() {
  const list = (state.unprotected || []).map(({ path, reason }) =>
    el(
      "div.plan-file",
      {},
      pathText(path),
      el("span.what", {}, visible(reason || "")),
      protectButton(path),
    ),
  );
  openDialog({
    title: "Not protected",
    about:
      "These files changed, but snapshots leave them out: no undo brings them back. Protecting one adds a line to .shadowtreeignore.",
    body: list.length ? list : [el("p", {}, "Everything that changed is protected.")],
    foot: [],
  });
}

/** Record a file from now on, with one click. */
function protectButton(path) {
  if (isReadOnly()) return null;
  const made = button(
    "Protect",
    async () => {
      made.disabled = true;
      try {
        await post("/api/protect", { session: state.session, paths: [path] });
        made.textContent = "Protected";
        note({ title: "Protected from now on", lines: [path] });
        refreshCorner();
      } catch (error) {
        made.disabled = false;
        noteError(error);
      }
    },
    ".small",
    { "aria-label": `Protect ${visible(path)}` },
  );
  return made;
}

// The keys

const KEYS = [
  ["↓ ↑ or j k", "next or previous turn"],
  ["Enter", "restore to here, or redo to here (you see the plan first)"],
  ["u", "undo the last turn"],
  ["r", "redo the next turn"],
  ["o", "undo only this turn"],
  ["b", "branches from here"],
  ["s", "fold out text, files and steps"],
  ["d", "unified or side by side"],
  ["f", "go to the diff"],
  ["/", "filter"],
  ["m", "menu of the turn"],
  ["t", "light or dark"],
  ["?", "this list"],
  ["Ctrl Enter", "apply, in a plan"],
  ["Esc", "close"],
];

function openHelp() {
  const box = el("input", {
    type: "checkbox",
    onchange: (event) => {
      state.keysOn = event.target.checked;
      localStorage.setItem("shadowtree-keys", state.keysOn ? "1" : "0");
    },
  });
  box.checked = state.keysOn;
  const rows = KEYS.flatMap(([keys, what]) => [
    el(
      "span",
      {},
      keys.split(" ").map((key) => (key === "or" ? " or " : el("kbd", {}, key))),
    ),
    el("span", {}, what),
  ]);
  openDialog({
    title: "Keyboard shortcuts",
    body: [el("div.keys", {}, rows)],
    foot: [el("label.plan-file", {}, box, "Use single-letter shortcuts")],
  });
}
