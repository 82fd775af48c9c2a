// Which frames the tree shows: what was searched and filtered for, and what is folded.

function tree_of(model) {
  return { model, folded: new Set(), states: new Set(), kinds: new Set(), needle: "", found: new Set(), active: model.order[0], rows: [], hits: 0 };
}

function state_matches(frame, states) {
  return !states.size || states.has(frame.state) || (states.has("limited") && frame.limit !== null);
}

function text_matches(tree, frame) {
  const { model, needle } = tree;
  if (!needle) return true;
  if (frame.id === needle || frame.task.toLowerCase().includes(needle) || tree.found.has(frame.id)) return true;
  const answer = frame.answer === null ? "" : model.events[frame.answer].answer;
  return answer.toLowerCase().includes(needle);
}

// Fill `rows` with the frames to show, in order: those that match and, `dim`, those above them.
function arrange(tree) {
  const { model } = tree;
  const filtered = tree.needle || tree.states.size || tree.kinds.size;
  const shown = new Map();
  tree.hits = 0;
  for (const id of model.order) {
    const frame = model.frames.get(id);
    const fits = state_matches(frame, tree.states) && (!tree.kinds.size || tree.kinds.has(frame.kind ?? "")) && text_matches(tree, frame);
    if (!fits) continue;
    tree.hits += 1;
    shown.set(id, false);
    for (let above = frame.parent; above !== null && !shown.has(above); above = model.frames.get(above).parent) shown.set(above, true);
  }
  tree.rows = [];
  let under = null; // the folded frame whose subtree is being left out
  for (const id of model.order) {
    if (under !== null && id.startsWith(`${under}.`)) continue;
    under = null;
    if (!shown.has(id)) continue;
    tree.rows.push({ id, dim: shown.get(id) });
    if (!filtered && tree.folded.has(id)) under = id;
  }
  if (!tree.rows.some((row) => row.id === tree.active)) tree.active = tree.rows[0]?.id ?? null;
}

// Make a frame one that is shown, whatever is folded or filtered.
function reveal(tree, id) {
  for (let above = tree.model.frames.get(id).parent; above !== null; above = tree.model.frames.get(above).parent) tree.folded.delete(above);
  tree.active = id;
  arrange(tree);
  if (tree.active === id) return;
  Object.assign(tree, { needle: "", states: new Set(), kinds: new Set(), active: id });
  arrange(tree);
}

function counts_by(model, name) {
  const counts = new Map();
  for (const frame of model.frames.values()) counts.set(frame[name] ?? "", (counts.get(frame[name] ?? "") ?? 0) + 1);
  return counts;
}

function chips(tree, changed) {
  const { model } = tree;
  const states = counts_by(model, "state");
  states.set("limited", [...model.frames.values()].filter((frame) => frame.state === "limited" || frame.limit !== null).length);
  const names = ["done", "failed", "limited", "running"].concat(states.get("waiting") ? ["waiting"] : []);
  const kinds = [...counts_by(model, "kind").keys()].filter(Boolean).sort();
  const chip = (set, name, label, klass) => {
    const button = h("button", { type: "button", class: `chip ${klass}`, "aria-pressed": "false", data: { name } }, label);
    button.addEventListener("click", () => {
      if (!set().delete(name)) set().add(name);
      changed();
    });
    return button;
  };
  const by_state = names.map((name) => chip(() => tree.states, name, [mark(name), ` ${state_name(model, name)} `, h("b", { text: number(states.get(name) ?? 0) })], `state ${states.get(name) ? "" : "empty"}`));
  const by_kind = kinds.length > 1 || kinds[0] ? kinds.map((name) => chip(() => tree.kinds, name, [marked(line(name, 20))], "kind")) : [];
  return h("div", { class: "chiprow" }, h("span", { role: "group", "aria-label": "States" }, ...by_state), h("span", { role: "group", "aria-label": "Kinds" }, ...by_kind));
}

function mark(state, title = null) {
  return h("span", { class: `mark ${state}`, title, "aria-hidden": "true", text: MARKS[state] });
}
