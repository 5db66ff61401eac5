// The keyboard, and menus.

/** Open a menu at the mouse or below what was clicked: items are {label, key, run}. */
function openMenu(event, items) {
  event.preventDefault();
  closeMenu();
  const opener = event.currentTarget instanceof Element ? event.currentTarget : document.activeElement;
  const menu = el(
    "div.menu",
    { role: "menu", id: "menu" },
    items.map(({ label, key, run }) =>
      el(
        "button",
        {
          type: "button",
          role: "menuitem",
          tabindex: -1,
          onclick: () => {
            closeMenu();
            run();
          },
        },
        el("span", {}, label),
        key ? el("i", { "aria-hidden": "true" }, key) : null,
      ),
    ),
  );
  menu.addEventListener("keydown", (pressed) => moveInMenu(pressed, menu, opener));
  (document.querySelector("dialog[open]") || document.querySelector("main")).append(menu);
  const box = opener.getBoundingClientRect();
  const isMouse = event.type === "contextmenu" && (event.clientX || event.clientY);
  setStyle(menu, "left", `${Math.min(isMouse ? event.clientX : box.left, innerWidth - menu.offsetWidth - 8)}px`);
  setStyle(menu, "top", `${Math.min(isMouse ? event.clientY : box.bottom + 4, innerHeight - menu.offsetHeight - 8)}px`);
  menu.firstChild?.focus();
}

function closeMenu() {
  $("menu")?.remove();
}

function moveInMenu(event, menu, opener) {
  const items = [...menu.children];
  const at = items.indexOf(document.activeElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 }[event.key];
  event.stopPropagation();
  if (to !== undefined) items.at(to % items.length).focus();
  else if (event.key === "Escape" || event.key === "Tab") {
    closeMenu();
    (opener.matches("button, [tabindex]") ? opener : opener.querySelector("button"))?.focus();
  } else return;
  event.preventDefault();
}

function openTurnMenu(event, turn) {
  const items = turnActions(turn);
  if (items.length) openMenu(event, items);
}

/** Move the choice by a number of turns. */
function moveChoice(step) {
  const at = state.line.findIndex((turn) => turn.key === state.chosen);
  const to = Math.min(state.line.length - 1, Math.max(0, at < 0 ? 0 : at + step));
  if (!state.line.length) return;
  choose(state.line[to].key);
  turnList.focus(state.line[to].key);
}

const ON_TURN = {
  Enter: (turn) => runAction(turn, "Enter"),
  o: (turn) => runAction(turn, "o"),
  b: (turn) => openBranches(turn),
  s: (turn) => turn.kind === "turn" && toggleExpanded(turn),
  m: (turn) => openMenuByKey(turn),
  ContextMenu: (turn) => openMenuByKey(turn),
};
const ANYWHERE = {
  ArrowDown: () => moveChoice(1),
  j: () => moveChoice(1),
  ArrowUp: () => moveChoice(-1),
  k: () => moveChoice(-1),
  PageDown: () => moveChoice(8),
  PageUp: () => moveChoice(-8),
  Home: () => moveChoice(-Infinity),
  End: () => moveChoice(Infinity),
  u: () => isReadOnly() || undoTurns(),
  r: () => isReadOnly() || redoTurns(1),
  d: () => setSplit(!state.split),
  f: () => showPane("diff", $("diff-files")),
  "/": () => $("find").focus(),
  t: () => toggleTheme(),
  "?": () => openHelp(),
};

function runAction(turn, key) {
  turnActions(turn)
    .find((each) => each.key === key)
    ?.run();
}

/** Open the menu of a turn below its title. */
function openMenuByKey(turn) {
  turnList.focus(turn.key);
  openMenu({ preventDefault() {}, type: "key", currentTarget: document.activeElement }, turnActions(turn));
}

function onKey(event) {
  const target = event.target;
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open], .menu")) return;
  if (target.matches("input, select, textarea")) return leaveInput(event, target);
  const isLetter = event.key.length === 1 && event.key !== "/" && event.key !== "?";
  if (isLetter && !state.keysOn) return;
  const isInList = target === document.body || target.closest(".pane.turns, .pane.timeline");
  if (!isLetter && event.key !== "/" && event.key !== "?" && !isInList) return; // Arrows scroll the diff.
  if (event.key === "Enter" && target.matches("button") && target.dataset.part !== "main") return;
  const turn = chosenTurn();
  const run = turn && ON_TURN[event.key] ? () => ON_TURN[event.key](turn) : ANYWHERE[event.key];
  if (!run) return;
  event.preventDefault();
  run();
}

/** Escape and Enter leave the filter for the turns. */
function leaveInput(event, target) {
  if (target.id !== "find" || !["Escape", "Enter", "ArrowDown"].includes(event.key)) return;
  event.preventDefault();
  if (event.key === "Escape") setFilter("");
  const first = state.line.find((turn) => turn.key === state.chosen) || state.line[0];
  if (!first) return;
  choose(first.key);
  turnList.focus(first.key);
}
