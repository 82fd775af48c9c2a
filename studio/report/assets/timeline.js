// The time line: calls in lanes over the time at work, how many at once, what waited, and the critical path.

const CHART = 76;
const SCALE = 22;
const ROLES = ["atomize", "decompose", "solve", "aggregate", "verify", "tool"];

function timeline_view(model) {
  const layout = laid_out(model);
  const path = critical_of(model);
  const { total, breaks } = axis_of(model);
  if (!layout.spans.length) return h("article", {}, h("h2", { text: "Time line" }), h("p", { class: "none", text: "No call was made." }));
  const view = { from: 0, to: total || 1, hover: null };
  const height = Math.max(4, Math.min(18, Math.floor(560 / layout.lanes)));
  const canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": `${plural(layout.spans.length, "call and use")} in ${plural(layout.lanes, "lane")} over ${duration(total)}; the critical path takes ${duration(path.seconds)}. Plus and minus zoom, arrows move.` });
  const scene = { model, layout, path, breaks, view, height, canvas, total: total || 1, tall: CHART + SCALE + layout.lanes * height + 8 };
  canvas.style.height = `${scene.tall}px`;
  const draw = () => requestAnimationFrame(() => canvas.isConnected && paint(scene));
  listen(scene, draw);
  new ResizeObserver(draw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  const button = (text, label, act) => h("button", { type: "button", "aria-label": label, title: label, on: { click: () => (act(), draw()) } }, text);
  return h("article", { class: "timeline" },
    h("h2", { text: "Time line" }),
    h("p", { class: "sums" }, ...sums(model, path, total)),
    h("div", { class: "bar-row" }, legend(layout), h("span", { class: "zoom" }, button("−", "Zoom out", () => zoom(view, 2, 0.5, scene.total)), button("+", "Zoom in", () => zoom(view, 0.5, 0.5, scene.total)), button("all", "Whole run", () => Object.assign(view, { from: 0, to: scene.total })))),
    h("div", { class: "lanes" }, canvas),
    h("section", {}, h("h3", { text: `Critical path: ${duration(path.seconds)}` }), h("p", { class: "dim", text: "The longest chain of work in which each part had to wait for the one before it, by the plans; what waited for a place is not counted." }), chain(model, path)));
}

function sums(model, path, total) {
  const queued = model.spans.reduce((sum, span) => sum + span.at - span.begin, 0);
  const paused = model.spans.reduce((sum, span) => sum + paused_in(span), 0);
  const parts = [["wall time ", duration(total)], ["critical path ", duration(path.seconds)]];
  if (path.seconds > 0) parts.push(["wall over path ", `${(total / path.seconds).toFixed(2)} ×`]);
  parts.push(["waited for a place ", queued > 0.05 ? duration(queued) : "nothing"], ["paused after faults ", paused > 0 ? duration(paused) : "nothing"]);
  return parts.map(([name, value]) => h("span", {}, h("span", { class: "dim", text: name }), h("b", { text: value })));
}

function legend(layout) {
  const used = new Set(layout.spans.map((span) => span.role));
  const items = [...ROLES.filter((role) => used.has(role)), ...[...used].filter((role) => !ROLES.includes(role))].map((role) => h("span", {}, h("i", { class: `swatch r-${line(role, 12)}` }), line(role, 20)));
  const more = [["critical", "critical path"]];
  if (layout.queued.length > 1) more.push(["queued", "waiting for a place"]);
  if (layout.spans.some((span) => span.holes.length)) more.push(["paused", "pause after a fault"]);
  if (layout.spans.some((span) => span.saved)) more.push(["saved", "saved reply"]);
  return h("span", { class: "legend" }, ...items, ...more.map(([klass, text]) => h("span", {}, h("i", { class: `swatch ${klass}` }), text)));
}

function chain(model, path) {
  const parts = path.path.filter((part) => part.own > 0);
  const most = Math.max(...parts.map((part) => part.own), 1e-9);
  const items = parts.slice(0, 100).map((part) => {
    const bar = h("i");
    bar.style.width = `${(part.own / most) * 100}%`;
    return h("li", {}, frame_link(part.id, model), h("span", { class: "said", text: line(model.frames.get(part.id).task, 70) }), h("span", { class: "track" }, bar), h("span", { class: "n", text: duration(part.own) }));
  });
  if (parts.length > 100) items.push(h("li", { class: "dim", text: `and ${parts.length - 100} more` }));
  return h("ol", { class: "chain" }, ...items);
}

function zoom(view, by, around, total) {
  const width = Math.min(total, Math.max(total / 1e5, (view.to - view.from) * by));
  const middle = view.from + (view.to - view.from) * around;
  pan(Object.assign(view, { from: middle - width * around, to: middle + width * (1 - around) }), 0, total);
}

function pan(view, by, total) {
  const width = view.to - view.from;
  view.from = Math.max(0, Math.min(total - width, view.from + by));
  view.to = view.from + width;
}

function listen(scene, draw) {
  const { canvas, view, total } = scene;
  const part_of = (event) => (event.offsetX / canvas.clientWidth);
  let drag = null;
  canvas.addEventListener("wheel", (event) => {
    if (!(event.ctrlKey || event.metaKey || event.shiftKey)) return;
    event.preventDefault();
    if (event.shiftKey) pan(view, ((view.to - view.from) * (event.deltaY || event.deltaX)) / 800, total);
    else zoom(view, event.deltaY > 0 ? 1.25 : 0.8, part_of(event), total);
    draw();
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => (drag = { x: event.clientX, from: view.from, moved: false }));
  canvas.addEventListener("pointermove", (event) => {
    if (drag && event.buttons) {
      const by = event.clientX - drag.x;
      drag.moved ||= Math.abs(by) > 4;
      const width = view.to - view.from;
      if (drag.moved) pan(Object.assign(view, { from: drag.from, to: drag.from + width }), (-by / canvas.clientWidth) * width, total);
    } else hover(scene, event);
    draw();
  });
  canvas.addEventListener("pointerleave", () => (hover(scene, null), draw()));
  canvas.addEventListener("click", () => {
    if (!drag?.moved && view.hover) location.hash = `frame=${view.hover.frame}`;
    drag = null;
  });
  canvas.addEventListener("keydown", (event) => {
    const act = { "+": () => zoom(view, 0.5, 0.5, total), "=": () => zoom(view, 0.5, 0.5, total), "-": () => zoom(view, 2, 0.5, total), 0: () => Object.assign(view, { from: 0, to: total }),
      ArrowLeft: () => pan(view, (view.from - view.to) / 5, total), ArrowRight: () => pan(view, (view.to - view.from) / 5, total) }[event.key];
    if (!act || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    act();
    draw();
  });
}

function hover(scene, event) {
  const { canvas, view, layout } = scene;
  const tip = document.getElementById("tip");
  const found = event && under(scene, event.offsetX, event.offsetY);
  view.hover = found || null;
  canvas.style.cursor = found ? "pointer" : "";
  tip.hidden = !event || (!found && event.offsetY > CHART);
  if (tip.hidden) return;
  const time = view.from + (event.offsetX / canvas.clientWidth) * (view.to - view.from);
  const waits = found ? [found.from > found.asked + 0.001 ? `, waited ${duration(found.from - found.asked)} for a place` : "", found.holes.length ? `, ${plural(found.holes.length, "pause")}` : ""].join("") : "";
  tip.replaceChildren(...(found
    ? [h("b", { text: `${found.frame} ${found.role}` }), h("span", { text: ` ${found.saved ? "saved" : duration(found.to - found.from)}${waits}${found.critical ? ", critical" : ""}` }), h("br"), h("span", { text: line(scene.model.frames.get(found.frame).task, 90) })]
    : [h("b", { text: `+${duration(time)}` }), h("span", { text: ` ${level_at(layout.served, time)} at work, ${level_at(layout.queued, time)} waiting for a place` })]));
  const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${event.clientY + 18 + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : event.clientY + 18}px`;
}

function under(scene, x, y) {
  const { canvas, view, layout, height } = scene;
  const lane = Math.floor((y - CHART - SCALE) / height);
  if (lane < 0) return null;
  const per = (view.to - view.from) / canvas.clientWidth;
  const time = view.from + x * per;
  let [best, off] = [null, 4 * per];
  for (const span of layout.spans) {
    if (span.lane !== lane || span.from > time + off || span.to < time - off) continue;
    const gap = Math.max(span.from - time, time - span.to, 0);
    if (!best || gap < off) [best, off] = [span, gap];
  }
  return best;
}
