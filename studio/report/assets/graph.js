// A plan as a graph: each subtask below those that it builds on.

const BOX = { width: 190, height: 58, across: 26, down: 38 };

function plan_graph(model, frame, subtasks) {
  const rank = layers(subtasks);
  const rows = [];
  subtasks.forEach((subtask, place) => (rows[rank[place]] ??= []).push(place));
  const split = rows.flatMap((row) => Array.from({ length: Math.ceil(row.length / 6) }, (_, part) => row.slice(part * 6, part * 6 + 6)));
  const most = Math.max(...split.map((row) => row.length));
  const width = most * (BOX.width + BOX.across) - BOX.across + 4;
  const at = [];
  split.forEach((row, down) => {
    const left = (width - row.length * (BOX.width + BOX.across) + BOX.across) / 2;
    row.forEach((place, across) => (at[place] = { x: left + across * (BOX.width + BOX.across), y: 2 + down * (BOX.height + BOX.down) }));
  });
  const height = split.length * (BOX.height + BOX.down) - BOX.down + 4;
  const numbers = new Map(subtasks.map((subtask, place) => [subtask.id, place]));
  const edges = subtasks.flatMap((subtask, place) => subtask.depends_on.filter((name) => numbers.has(name)).map((name) => edge(at[numbers.get(name)], at[place])));
  const boxes = subtasks.map((subtask, place) => box(model, `${frame.id}.${place}`, subtask, at[place]));
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": `Plan of ${frame.id}: ${plural(subtasks.length, "subtask")}` });
  drawing.append(...edges, ...boxes);
  return h("div", { class: "graph", tabindex: "0", "aria-label": "Plan as a graph" }, drawing);
}

// Return the layer of each subtask: one below the lowest that it builds on.
function layers(subtasks) {
  const numbers = new Map(subtasks.map((subtask, place) => [subtask.id, place]));
  const rank = subtasks.map(() => 0);
  for (let round = 0; round < subtasks.length; round += 1) {
    let moved = false;
    subtasks.forEach((subtask, place) => {
      for (const name of subtask.depends_on) {
        const need = numbers.get(name);
        if (need === undefined || need === place || rank[place] > rank[need]) continue;
        rank[place] = rank[need] + 1;
        moved = true;
      }
    });
    if (!moved) break;
  }
  const used = [...new Set(rank)].sort((a, b) => a - b);
  return rank.map((layer) => used.indexOf(layer));
}

function edge(from, to) {
  const [x1, y1, x2, y2] = [from.x + BOX.width / 2, from.y + BOX.height, to.x + BOX.width / 2, to.y];
  const bend = Math.max(18, (y2 - y1) / 2);
  const path = svg("path", { class: "edge", d: `M${x1} ${y1} C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2 - 5}` });
  const head = svg("path", { class: "head", d: `M${x2 - 4.5} ${y2 - 7} L${x2} ${y2} L${x2 + 4.5} ${y2 - 7} Z` });
  return svg("g", {}, path, head);
}

function box(model, id, subtask, { x, y }) {
  const frame = model.frames.get(id);
  const state = frame?.state ?? "planned";
  const label = (down, text, klass) => {
    const element = svg("text", { x: x + 12, y: y + down, class: klass });
    element.textContent = text;
    return element;
  };
  const words = wrapped(line(subtask.task, 90), 27);
  const title = svg("title", {});
  title.textContent = `${id} ${state_name(model, state)}: ${line(subtask.task, 300)}`;
  const parts = [title, svg("rect", { x, y, width: BOX.width, height: BOX.height, rx: 6, class: `box ${state}` }),
    label(17, `${MARKS[state] ?? "○"} ${id}${subtask.kind ? `  ${line(subtask.kind, 12)}` : ""}`, `boxid ${state}`),
    label(34, words[0], "boxtask"), label(48, words[1] ?? "", "boxtask")];
  if (!frame) return svg("g", { class: "node" }, ...parts);
  return svg("a", { href: `#frame=${id}`, class: "node", "aria-label": `${id}, ${state_name(model, state)}` }, ...parts);
}

// Return a text on two lines of about so many letters, the rest cut.
function wrapped(text, most) {
  if (text.length <= most) return [text];
  const space = text.lastIndexOf(" ", most);
  const cut = space > most / 2 ? space : most;
  return [text.slice(0, cut), line(text.slice(cut).trim(), most)];
}
