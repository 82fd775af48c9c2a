// The whole run: task, answer, what is missing, and what it cost.

async function overview(model) {
  const run = model.task ? await full(model.task) : null;
  const result = model.result ?? {};
  const root = model.frames.get("0");
  const plan = root && root.plan !== null ? await full(model.events[root.plan]) : null;
  return h("article", { class: "overview" },
    notice(model),
    h("section", {}, h("h2", { text: "Task" }), block(run?.task ?? "", { kind: "text tasktext" })),
    await outcome(model, result),
    told("Gaps", result.gaps, model, "gaps"),
    waiting(result.pending, model),
    h("section", {}, h("h2", { text: "Totals" }), totals(model)),
    plan?.subtasks.length ? h("section", {}, h("h2", { text: "Plan" }), plan_graph(model, root, plan.subtasks)) : null,
    costs(model),
    told("Notes", result.notes, model, "notes"),
    sessions(model),
    settings(model));
}

function notice(model) {
  const says = {
    running: "This run has no end: it is at work, or its process was killed. What stands here is what it told until then.",
    limited: "A limit was reached: what was found until then is below.",
    interrupted: "The run waits for a person.",
    cancelled: "The run was stopped.",
    failed: "The run ended without an accepted answer.",
  }[model.status];
  return says ? h("p", { class: `notice ${model.status}`, text: says }) : null;
}

async function outcome(model, result) {
  const found = result.output ?? result.partial;
  if (found !== null && found !== undefined) {
    return h("section", {}, h("h2", { text: result.output === null || result.output === undefined ? "Found so far" : "Answer" }), block(found, { model, kind: "text answer" }));
  }
  const root = model.frames.get("0");
  if (!root || root.answer === null) return h("section", {}, h("h2", { text: "Answer" }), h("p", { class: "none", text: "None." }));
  const last = await full(model.events[root.answer]);
  return h("section", {}, h("h2", { text: "Last answer, not accepted" }), block(last.answer, { model, kind: "text answer" }));
}

function told(title, lines, model, klass) {
  if (!lines?.length) return null;
  const items = lines.slice(0, 200).map((text) => h("li", {}, led(text, model)));
  if (lines.length > 200) items.push(h("li", { class: "dim", text: `and ${number(lines.length - 200)} more` }));
  return h("section", { class: klass }, h("h2", { text: `${title} (${number(lines.length)})` }), h("ul", {}, ...items));
}

// Return a line of the result with the frame that it begins with as a link.
function led(text, model) {
  const match = /^(0(?:\.\d+)*)(?=:)/.exec(text);
  if (!match || !model.frames.has(match[1])) return h("span", {}, cited(text, model));
  return h("span", {}, frame_link(match[1], model), cited(text.slice(match[1].length), model));
}

function waiting(pending, model) {
  if (!pending?.length) return null;
  const items = pending.map((plan) => h("li", {}, model.frames.has(plan.frame) ? frame_link(plan.frame, model) : line(plan.frame ?? plan.id, 40), " ", line(plan.task ?? "", 160)));
  return h("section", { class: "pending" }, h("h2", { text: "Waiting for a person" }), h("p", {}, "Decide by ", h("code", { text: `cactus resume ${model.run_id}` })), h("ul", {}, ...items));
}

function totals(model) {
  const { total, bound } = model;
  const axis = axis_of(model);
  const path = critical_of(model);
  const worked = union_by(model.spans);
  const cards = [
    ["frames", number(model.frames.size), bound?.frames ? `of at most ${number(bound.frames)}` : ""],
    ["calls", number(total.calls), bound?.calls ? `of at most ${number(bound.calls)}` : ""],
    ["tokens", short(total.input + total.output), `${short(total.input)} in, ${short(total.output)} out`],
    ["cost", money(total.usd), total.usd === null ? "a price is not known" : "US dollars"],
    ["wall time", duration(axis.total), model.sessions.length > 1 ? `at work, in ${model.sessions.length} sessions` : ""],
    ["critical path", duration(path.seconds), path.seconds > 0 ? `wall time is ${(axis.total / path.seconds).toFixed(2)} ×` : ""],
    ["at once", worked.mean.toFixed(1), `calls on average, ${worked.peak} at most`],
  ];
  if (total.saved) cards.push(["saved calls", number(total.saved), "answered before"]);
  return h("div", { class: "cards" }, ...cards.map(([name, value, more]) => h("div", { class: "card" }, h("span", { class: "dim", text: name }), h("b", { text: value }), h("span", { class: "dim small", text: more }))));
}

// Return how many calls were served at once: at most, and on average while any was.
function union_by(spans) {
  const served = spans.filter((span) => !span.saved && span.end > span.at);
  const edges = served.flatMap((span) => [[span.at, 1], [span.end, -1]]).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  let [now, peak] = [0, 0];
  for (const [, by] of edges) peak = Math.max(peak, (now += by));
  const covered = union(served.map((span) => [span.at, span.end]));
  return { peak, mean: covered ? served.reduce((sum, span) => sum + span.end - span.at, 0) / covered : 0 };
}

function costs(model) {
  const root = model.frames.get(model.order[0]);
  const below = root.children.map((id) => model.frames.get(id)).map((frame) => [frame_link(frame.id, model), line(frame.task, 80), frame.sum]);
  const subtrees = [[frame_link(root.id, model), "itself: its plan, combination and verdicts", root.own], ...below];
  const groups = [table("Cost by subtree", subtrees, model)];
  const named = (map) => [...map].sort((a, b) => share(model, b[1]) - share(model, a[1])).map(([name, sum]) => [line(name, 40), "", sum]);
  groups.push(table("By role", named(model.roles), model));
  if (model.kinds.size > 1) groups.push(table("By kind", named(model.kinds), model));
  if (model.models.size > 1) groups.push(table("By model", named(model.models), model));
  const dear = [...model.frames.values()].sort((a, b) => share(model, b.own) - share(model, a.own)).slice(0, 5).filter((frame) => frame.own.calls);
  if (model.frames.size > 8) groups.push(table("Dearest frames, by themselves", dear.map((frame) => [frame_link(frame.id, model), line(frame.task, 80), frame.own]), model));
  return h("div", {}, ...groups);
}

function table(title, rows, model) {
  const most = 60;
  const shown = rows.slice(0, most).map(([name, text, sum]) => {
    const part = share(model, sum);
    const bar = h("i");
    bar.style.width = `${part * 100}%`;
    return h("tr", {}, h("th", { scope: "row" }, name, text ? h("span", { class: "dim", text: ` ${text}` }) : null), h("td", { class: "n", text: number(sum.calls) }), h("td", { class: "n", text: short(sum.input + sum.output) }),
      model.priced ? h("td", { class: "n", text: money(sum.usd) }) : null, h("td", { class: "bar" }, h("span", { class: "track" }, bar), h("em", { text: `${Math.round(part * 100)}%` })));
  });
  const head = h("tr", {}, h("th", { scope: "col" }), h("th", { scope: "col", class: "n", text: "calls" }), h("th", { scope: "col", class: "n", text: "tokens" }), model.priced ? h("th", { scope: "col", class: "n", text: "cost" }) : null, h("th", { scope: "col", text: "share" }));
  const more = rows.length > most ? h("p", { class: "dim", text: `and ${number(rows.length - most)} more in the tree` }) : null;
  return h("section", {}, h("h2", { text: title }), h("table", {}, h("thead", {}, head), h("tbody", {}, ...shown)), more);
}

function sessions(model) {
  if (!model.sessions.length) return null;
  const items = model.sessions.map((session) => h("li", {}, h("b", { text: `${session.number}` }), ` ${clock(session.begin)}, ${duration(session.last - session.begin)}: `, session.status ?? (session === model.sessions.at(-1) ? "no end yet" : "killed")));
  return h("section", {}, h("h2", { text: "Sessions" }), h("ol", { class: "sessions" }, ...items));
}

function settings(model) {
  const rows = Object.entries(model.settings).filter(([, value]) => value !== null && value !== "" && JSON.stringify(value) !== "{}" && JSON.stringify(value) !== "[]");
  if (!rows.length) return null;
  const changed = model.settings.change;
  const fork = changed ? h("p", { class: "notice" }, "A fork: frame ", frame_link(changed.frame ?? "0", model), " was changed, and what depends on it done anew.") : null;
  return h("section", {}, h("h2", { text: "Settings" }), fork, h("details", {}, h("summary", { text: plural(rows.length, "setting") }), pairs(rows.map(([name, value]) => [name, typeof value === "string" ? line(value, 400) : line(JSON.stringify(value), 400)]))));
}
