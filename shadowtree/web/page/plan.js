// Before every change: what an act would do to each file, your own edits first, and the choice.

const ACTIONS = {
  restore: ["M", "restored"],
  create: ["A", "created"],
  delete: ["D", "deleted"],
  merge: ["M", "merged with your edits"],
  keep: ["Y", "kept as yours"],
  conflict: ["Y", "to decide"],
  skip: ["Y", "left alone"],
};
const CHOICES = {
  keep: "Keep mine",
  merge: "Merge",
  markers: "Merge, with markers where lines collide",
  overwrite: "Overwrite mine",
};

/** Show what an act would do, and do exactly that if it is confirmed. `ask`: {title, note, route, body}. */
function askPlan(ask) {
  return new PlanSheet(ask).plan();
}

/** The dialog of one act: the request, the choices for files of yours, and the plan. */
class PlanSheet {
  constructor(ask) {
    this.ask = ask;
    this.own = new Map(); // by path: the server's description of the conflict
    this.choices = new Map(); // by path: the choice; your own edits are kept by default
    this.round = 0;
    this.apply = button("Working…", () => this.run(), ".primary", { disabled: true });
    this.saved = el("span.muted.grow", {}, "Your present files are saved first. You can go back.");
    this.parts = openDialog({
      title: ask.title,
      about: ask.note || "",
      body: [el("p.muted", {}, "Working out what would change…")],
      foot: [this.saved, button("Cancel", () => this.parts.dialog.close()), this.apply],
    });
    this.parts.dialog.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !this.apply.disabled) this.run();
    });
  }

  /** The body of a request. A path is written as ./path, because "*" alone would mean all paths. */
  request(more) {
    const chosen = [...this.choices].map(([path, choice]) => [`./${path}`, choice === "markers" ? "merge" : choice]);
    return {
      session: state.session,
      ...this.ask.body,
      on_conflict: chosen.length ? Object.fromEntries(chosen) : "abort",
      markers: [...this.choices.values()].includes("markers"),
      ...more,
    };
  }

  /** Find the current conflicts, keep the choices for those that are still there, and show the plan. */
  async plan(notice = null) {
    const earlier = this.choices;
    this.own.clear();
    this.choices = new Map();
    await this.planWith(notice, (path) => earlier.get(path) || "keep");
  }

  /** Plan with the choices, until every conflict has one. */
  async planWith(notice, firstChoice) {
    const round = ++this.round;
    this.apply.disabled = true;
    try {
      let plan = await this.dryRun();
      for (let tries = 0; tries < 3 && this.newConflicts(plan).length; tries++) {
        this.takeConflicts(await this.dryRun({ diff: true }), firstChoice);
        plan = await this.dryRun();
      }
      if (round === this.round) this.show(plan, notice);
    } catch (error) {
      if (round === this.round) this.fail(error);
    }
  }

  /** Request the plan; with `diff`, also where a merge would collide, which takes longer. */
  dryRun(how = {}) {
    return post(this.ask.route, this.request({ dry_run: true, ...how }));
  }

  newConflicts(plan) {
    return plan.files.filter((file) => file.action === "conflict" && !this.choices.has(file.path));
  }

  /** Remember the conflicts that have no choice yet, and choose. */
  takeConflicts(plan, firstChoice) {
    for (const file of this.newConflicts(plan)) {
      this.own.set(file.path, file);
      this.choices.set(file.path, firstChoice(file.path));
    }
  }

  choose(path, choice) {
    this.choices.set(path, choice);
    this.planWith(null, () => "keep");
  }

  show(plan, notice) {
    this.current = plan;
    const isNothing = !plan.messages.length && !plan.files.length;
    const focused = this.focusName();
    this.parts.aboutLine.textContent = [this.ask.note, isNothing ? "" : planSentence(plan)].filter(Boolean).join(" ");
    this.parts.content.replaceChildren(
      ...(notice ? [el("p.notice", { role: "alert" }, visible(notice))] : []),
      ...(isNothing ? [el("p", {}, "There is nothing to change.")] : []),
      ...plan.notes.map((line) => el("p.notice", {}, visible(line))),
      ...this.drawAllOwn(plan),
      ...drawOthers(plan, this.own),
    );
    this.refocus(focused);
    this.apply.textContent = isNothing ? "Nothing to do" : "Apply";
    this.apply.disabled = isNothing || plan.files.some((file) => file.action === "conflict");
    this.saved.hidden = isNothing;
  }

  drawAllOwn(plan) {
    if (!this.own.size) return [];
    const now = new Map(plan.files.map((file) => [file.path, file]));
    const drawn = [...this.own.values()].map((file, index) => this.drawOwn(file, now.get(file.path) || file, index));
    return [el("h3", {}, `Edited by you since (${this.own.size})`), ...drawn];
  }

  /** One file of yours: unticked, with the choices and the lines that collide. `now` is what would happen to it. */
  drawOwn(file, now, index) {
    const isStuck = now.action === "conflict";
    const outcome = el("span.what", {}, isStuck ? "cannot be merged" : ACTIONS[now.action][1]);
    const choices = choicesFor(file);
    return el(
      "div.own",
      {},
      el(
        "div.plan-file",
        {},
        this.tick(file, choices, index),
        letter("Y", "edited by you"),
        pathText(file.path),
        outcome,
      ),
      el("p", {}, readableReason(now.reason || file.reason)),
      el(
        "fieldset",
        {},
        el("legend.sr", {}, `What to do with ${visible(file.path)}`),
        choices.map((choice) => this.radio(file, choice, index)),
      ),
      (now.hunks.length ? now.hunks : file.hunks).map(drawHunk),
    );
  }

  /** The box: unticked, the file stays as it is. */
  tick(file, choices, index) {
    const box = el("input", {
      type: "checkbox",
      "data-part": `tick-${index}`,
      "aria-label": `Change ${visible(file.path)}`,
      onchange: (event) => this.choose(file.path, event.target.checked ? choices[1] || "keep" : "keep"),
    });
    box.checked = this.choices.get(file.path) !== "keep";
    return box;
  }

  radio(file, choice, index) {
    const input = el("input", {
      type: "radio",
      name: `choice-${index}`,
      value: choice,
      "data-part": `choice-${index}-${choice}`,
      onchange: () => this.choose(file.path, choice),
    });
    input.checked = this.choices.get(file.path) === choice;
    return el("label", {}, input, CHOICES[choice]);
  }

  /** The name of the part that has the focus, for `refocus` after the plan was redrawn. */
  focusName() {
    return this.parts.content.contains(document.activeElement) ? document.activeElement.dataset.part : null;
  }

  refocus(name) {
    if (name) this.parts.content.querySelector(`[data-part="${name}"]`)?.focus();
  }

  /** Do exactly what is shown. If that is no longer what would happen, show the new plan and do nothing. */
  async run() {
    this.apply.disabled = true;
    state.isActing = true;
    const body = this.request({ expect: this.current.id });
    lastAct = { session: body.session, isAwaited: true };
    try {
      this.finish(await post(this.ask.route, body));
      await refresh();
      await readCorner();
    } catch (error) {
      lastAct.isAwaited = false;
      await this.plan(whyNotDone(error));
    } finally {
      state.isActing = false;
    }
  }

  finish(outcome) {
    this.parts.dialog.close();
    noteOutcome(this.ask, outcome);
    state.follows = true;
  }

  fail(error) {
    this.parts.content.replaceChildren(el("p.notice.bad", { role: "alert" }, visible(error.message)));
    this.apply.textContent = "Apply";
  }
}

/** Say why an act was not done; only an answer of the server proves that nothing was done. */
function whyNotDone(error) {
  if (error.status === 409)
    return "Something changed since this was shown, so nothing was done. This is what would happen now.";
  if (error.status) return `It was not done: ${error.message}`;
  return "The connection broke off. The timeline shows whether it was done.";
}

/** Keep comes first; texts that collide are merged only with markers. */
function choicesFor(file) {
  const offered = new Set(file.choices);
  if (!offered.has("merge") && file.hunks.length) offered.add("markers");
  return Object.keys(CHOICES).filter((choice) => choice === "keep" || offered.has(choice));
}

/** "This undoes 2 turns and changes 4 files." */
function planSentence(plan) {
  const changing = plan.files.filter((file) => !["keep", "skip", "conflict"].includes(file.action)).length;
  const [back, forward] = turnCounts(plan);
  const parts = [
    back && `undoes ${count(back, "turn")}`,
    forward && `redoes ${count(forward, "turn")}`,
    changing ? `changes ${count(changing, "file")}` : "changes no file",
  ].filter(Boolean);
  return `This ${[parts.slice(0, -1).join(", "), parts.at(-1)].filter(Boolean).join(" and ")}.`;
}

/** The server's reason, with the turn's number, which the page shows, in place of the message's id. */
function readableReason(reason) {
  return visible(reason).replace(/message '([^']+)'/g, (said, id) => {
    const turn = state.byMessage.get(id);
    return turn ? `turn ${turn.label}` : said;
  });
}

/** The other files, what is left alone, and the turns. */
function drawOthers(plan, own) {
  const others = plan.files.filter((file) => !own.has(file.path));
  const unprotected = plan.unprotected.map((path) => ({ path, action: "skip", reason: "" }));
  const changing = others.filter((file) => file.action !== "skip");
  return [
    [changing, count(changing.length, "file"), planFile],
    [others.filter((file) => file.action === "skip"), "Left alone", planFile],
    [unprotected, "Not protected, so left alone", planFile],
    [turnsOf(plan.messages), count(countTurns(plan.messages), "turn"), planTurn],
  ]
    .filter(([items]) => items.length)
    .flatMap(([items, title, draw]) => [el("h3", {}, title), ...listAll(items, draw)]);
}

const MOST_LINES = 400;

/** A list; if it is very long, a click shows the rest. */
function listAll(items, draw) {
  const rest = items.slice(MOST_LINES);
  const more = rest.length
    ? button(`Show ${rest.length.toLocaleString("en")} more`, () => more.replaceWith(...rest.map(draw)), ".small")
    : null;
  return [...items.slice(0, MOST_LINES).map(draw), ...(more ? [more] : [])];
}

function planFile(file) {
  const [sign, word] = ACTIONS[file.action] || ["M", file.action];
  const isMine = file.own && file.action !== "skip";
  return el(
    "div.plan-file",
    {},
    letter(isMine ? "Y" : sign, isMine ? "may hold your own edits" : word),
    pathText(file.path),
    el("span.what", {}, [word, file.reason && readableReason(file.reason)].filter(Boolean).join(": ")),
  );
}

/** The turns of messages, each once, in order. */
function turnsOf(ids) {
  return [...new Map(ids.map((id) => [(state.byMessage.get(id) || { key: id }).key, id])).values()].map(
    (id) => state.byMessage.get(id) || { label: "", text: id },
  );
}

const planTurn = (turn) =>
  el("div.plan-file", {}, el("span.muted", {}, turn.label), el("span", {}, firstLine(turn.text)));

/** Lines that both sides changed: yours next to those that the act would write. */
function drawHunk(hunk) {
  const side = (title, text) =>
    el("div", {}, el("h4", {}, title), el("pre", { tabindex: 0 }, text ? visibleLines(text) : "(nothing)"));
  return el("div.hunk", {}, side(`Yours, line ${hunk.line}`, hunk.ours), side("Would be written", hunk.theirs));
}
