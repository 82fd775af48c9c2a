// The tree's rows: only those in view are elements, so that thousands of frames scroll smoothly.

const ROW = 30;
const SPARE = 12;

// Draw the tree in its pane; `open` is called with the id of a frame to look at. Returns what the page does with it.
function tree_view(tree, open) {
  const pane = document.getElementById("tree");
  const rows = document.getElementById("rows");
  const drawn = new Map();
  let first_of = [0, 0];

  function draw() {
    const from = Math.max(0, Math.floor(pane.scrollTop / ROW) - SPARE);
    const to = Math.min(tree.rows.length, Math.ceil((pane.scrollTop + pane.clientHeight) / ROW) + SPARE);
    rows.style.height = `${tree.rows.length * ROW}px`;
    const wanted = new Set(tree.rows.slice(from, to).map((row) => row.id));
    for (const [id, element] of drawn) {
      if (wanted.has(id)) continue;
      element.remove();
      drawn.delete(id);
    }
    for (let place = from; place < to; place += 1) put(place);
    first_of = [from, to];
    pane.setAttribute("aria-activedescendant", tree.active === null ? "" : `f${tree.active}`);
  }

  function put(place) {
    const { id, dim } = tree.rows[place];
    let element = drawn.get(id);
    if (!element) {
      element = row_of(tree, id);
      drawn.set(id, element);
      rows.append(element);
    }
    element.style.top = `${place * ROW}px`;
    element.classList.toggle("dim", dim);
    element.classList.toggle("active", id === tree.active);
    element.classList.toggle("open", id === tree.open);
    element.setAttribute("aria-selected", String(id === tree.active));
    if (tree.model.frames.get(id).children.length) element.setAttribute("aria-expanded", String(!tree.folded.has(id)));
  }

  function refresh() {
    arrange(tree);
    draw();
    const all = tree.model.order.length;
    document.getElementById("found").textContent = tree.hits === all ? plural(all, "frame") : `${number(tree.hits)} of ${plural(all, "frame")}`;
    for (const chip of document.querySelectorAll("#chips .chip")) {
      const set = chip.classList.contains("kind") ? tree.kinds : tree.states;
      chip.setAttribute("aria-pressed", String(set.has(chip.dataset.name)));
    }
    if (!tree.rows.length && !rows.querySelector(".none")) rows.append(h("p", { class: "none", text: "No frame is like that." }));
    else if (tree.rows.length) rows.querySelector(".none")?.remove();
  }

  function scroll_to(id) {
    const place = tree.rows.findIndex((row) => row.id === id);
    if (place < 0) return;
    const top = place * ROW;
    if (top < pane.scrollTop) pane.scrollTop = top - ROW;
    else if (top + ROW > pane.scrollTop + pane.clientHeight) pane.scrollTop = top + 2 * ROW - pane.clientHeight;
    draw();
  }

  function go(id) {
    if (id === null || id === undefined) return;
    tree.active = id;
    draw();
    scroll_to(id);
    if (document.body.dataset.view === "frame") open(id, true);
  }

  function move(by) {
    const place = tree.rows.findIndex((row) => row.id === tree.active);
    go(tree.rows[Math.max(0, Math.min(tree.rows.length - 1, place + by))]?.id);
  }

  function fold(id, folded) {
    if (folded) tree.folded.add(id);
    else tree.folded.delete(id);
    refresh();
  }

  function left() {
    const frame = tree.model.frames.get(tree.active);
    if (frame?.children.length && !tree.folded.has(frame.id)) fold(frame.id, true);
    else if (frame?.parent) go(frame.parent);
  }

  function right() {
    const frame = tree.model.frames.get(tree.active);
    if (frame && tree.folded.has(frame.id)) fold(frame.id, false);
    else if (frame?.children.length) move(1);
  }

  function next_bad() {
    const bad = (id) => tree.model.frames.get(id).state !== "done" || tree.model.frames.get(id).limit;
    const place = tree.rows.findIndex((row) => row.id === tree.active);
    const around = [...tree.rows.slice(place + 1), ...tree.rows.slice(0, place + 1)];
    go(around.find((row) => bad(row.id))?.id);
  }

  rows.addEventListener("click", (event) => {
    const element = event.target.closest(".row");
    if (!element) return;
    tree.active = element.dataset.id;
    if (event.target.closest(".twist.some")) fold(tree.active, !tree.folded.has(tree.active));
    else open(tree.active);
    draw();
  });
  pane.addEventListener("scroll", () => draw(), { passive: true });
  new ResizeObserver(() => draw()).observe(pane);
  return { refresh, draw, move, left, right, go, next_bad, scroll_to, fold, shown: () => first_of };
}

function row_of(tree, id) {
  const { model } = tree;
  const frame = model.frames.get(id);
  const siblings = frame.parent === null ? [id] : model.frames.get(frame.parent).children;
  const tokens = frame.sum.input + frame.sum.output;
  const part = share(model, frame.sum);
  const state = `${state_name(model, frame.state)}${frame.limit ? `, limit ${frame.limit}` : ""}`;
  const bar = h("span", { class: "share n", title: `${plural(tokens, "token")}, ${money(frame.sum.usd)}: ${(part * 100).toFixed(1)} % of the run` }, h("i"), h("em", { text: `${Math.round(part * 100)}%` }));
  bar.firstChild.style.width = `${part * 100}%`;
  const row = h("div",
    { class: "row", role: "treeitem", id: `f${id}`, "aria-level": frame.depth + 1, "aria-setsize": siblings.length, "aria-posinset": siblings.indexOf(id) + 1,
      "aria-label": `${id}, ${state}, ${line(frame.task, 120)}`, data: { id } },
    h("span", { class: "first" },
      h("span", { class: `twist ${frame.children.length ? "some" : ""}`, "aria-hidden": "true" }),
      mark(frame.state, state),
      h("span", { class: "id", text: id }),
      frame.kind ? h("span", { class: `kindtag k-${line(frame.kind, 12)}`, text: line(frame.kind, 12) }) : null,
      frame.limit && frame.state === "done" ? mark("limited", `limit ${frame.limit}`) : null,
      frame.attempts > 1 ? h("span", { class: "tries", title: `${frame.attempts} attempts`, text: `×${frame.attempts}` }) : null,
      h("span", { class: "task", title: line(frame.task, 300), text: line(frame.task, 300) || "(no task)" })),
    h("span", { class: "n calls", title: frame.sum.saved ? `${frame.sum.saved} more were saved` : null, text: short(frame.sum.calls) }),
    h("span", { class: "n", text: short(tokens) }),
    bar);
  row.firstChild.style.paddingLeft = `${Math.min(frame.depth, 24) * 14}px`;
  return row;
}
