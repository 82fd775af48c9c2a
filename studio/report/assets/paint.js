// Draws the time line on its canvas.

function paint(scene) {
  const { canvas, tall } = scene;
  const wide = canvas.clientWidth;
  const dots = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, wide * dots);
  canvas.height = tall * dots;
  const pen = canvas.getContext("2d");
  pen.scale(dots, dots);
  const style = getComputedStyle(document.documentElement);
  const ink = (name) => style.getPropertyValue(`--${name}`).trim() || style.getPropertyValue("--other").trim();
  const x = (time) => ((time - scene.view.from) / (scene.view.to - scene.view.from)) * wide;
  const tools = { pen, ink, x, wide, hatched: pattern(pen, ink("paused")) };
  pen.font = "11px system-ui, sans-serif";
  grid(scene, tools);
  chart(scene, tools);
  lanes(scene, tools);
  gaps(scene, tools);
}

function pattern(pen, colour) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const brush = tile.getContext("2d");
  brush.strokeStyle = colour;
  brush.lineWidth = 1.6;
  brush.beginPath();
  for (const shift of [-6, 0, 6]) {
    brush.moveTo(shift, 6);
    brush.lineTo(shift + 6, 0);
  }
  brush.stroke();
  return pen.createPattern(tile, "repeat");
}

function grid({ view, tall }, { pen, ink, x, wide }) {
  pen.fillStyle = ink("faint");
  pen.strokeStyle = ink("line");
  pen.lineWidth = 1;
  for (const at of ticks(view.from, view.to, Math.max(2, Math.floor(wide / 110)))) {
    const left = Math.round(x(at)) + 0.5;
    pen.beginPath();
    pen.moveTo(left, 0);
    pen.lineTo(left, tall);
    pen.stroke();
    const label = duration(at);
    pen.textAlign = left > wide - 50 ? "right" : "left";
    pen.fillText(label, pen.textAlign === "right" ? left - 4 : left + 4, CHART + 15);
  }
  pen.textAlign = "left";
}

function chart({ layout, model, total }, { pen, ink, x, wide }) {
  const times = [...new Set([...layout.served, ...layout.queued].map(([at]) => at))].sort((a, b) => a - b);
  const stacked = times.map((at) => [at, level_at(layout.served, at), level_at(layout.queued, at)]);
  const most = Math.max(1, ...stacked.map(([, served, queued]) => served + Math.min(queued, 3 * (layout.lanes || 1))));
  const y = (level) => CHART - 2 - (Math.min(level, most) / most) * (CHART - 16);
  const area = (level, colour) => {
    pen.fillStyle = colour;
    pen.beginPath();
    pen.moveTo(x(0), y(0));
    stacked.forEach((step, place) => {
      const [left, right] = [x(step[0]), x(stacked[place + 1]?.[0] ?? total)];
      if (right < 0 || left > wide) return;
      pen.lineTo(left, y(level(step)));
      pen.lineTo(right, y(level(step)));
    });
    pen.lineTo(Math.min(wide, x(total)), y(0));
    pen.fill();
  };
  area(([, served, queued]) => served + queued, ink("queued"));
  area(([, served]) => served, ink("served"));
  const places = model.settings.parallel;
  pen.strokeStyle = ink("faint");
  pen.fillStyle = ink("text");
  if (places && places <= most) {
    pen.setLineDash([4, 4]);
    pen.beginPath();
    pen.moveTo(0, y(places) + 0.5);
    pen.lineTo(wide, y(places) + 0.5);
    pen.stroke();
    pen.setLineDash([]);
  }
  const label = `at once, ${most} at most${places ? `; ${places} places` : ""}`;
  pen.fillText(label, 4, 10);
}

function lanes({ layout, height, view }, { pen, ink, x, wide, hatched }) {
  const colours = new Map();
  const colour = (role) => colours.get(role) ?? colours.set(role, ink(`r-${role}`)).get(role);
  const thick = Math.max(3, height - 3);
  for (const span of layout.spans) {
    if (span.to < view.from || span.from > view.to) continue;
    const top = CHART + SCALE + span.lane * height;
    const left = Math.max(-2, x(span.from));
    const width = Math.max(span.saved ? 2 : 1.5, Math.min(wide + 2, x(span.to)) - left - 0.5);
    pen.globalAlpha = span.critical ? 1 : 0.55;
    pen.fillStyle = span.saved ? ink("faint") : span.ok ? colour(span.role) : ink("bad");
    pen.fillRect(left, top, width, thick);
    pen.globalAlpha = 1;
    for (const [from, to] of span.holes) {
      pen.fillStyle = ink("back");
      pen.fillRect(x(from), top, x(to) - x(from), thick);
      pen.fillStyle = hatched;
      pen.fillRect(x(from), top, x(to) - x(from), thick);
    }
    if (span.critical && !span.saved) {
      pen.fillStyle = ink("critical");
      pen.fillRect(left, top + thick - 2, width, 2);
    }
    if (height >= 14 && width > 46) named_span(pen, ink, span, left, top + thick - 4, width);
    if (view.hover && view.hover.place === span.place) {
      pen.strokeStyle = ink("text");
      pen.lineWidth = 1.5;
      pen.strokeRect(left - 0.5, top - 0.5, width + 1, thick + 1);
    }
  }
}

function named_span(pen, ink, span, left, base, width) {
  pen.save();
  pen.beginPath();
  pen.rect(left, base - 14, width - 3, 20);
  pen.clip();
  const name = [`${span.frame} ${span.role === "tool" ? line(span.name, 24) : span.role}`, Math.max(4, left + 4), base];
  if (span.holes.length) { // the hatching is light or dark as the page is, the bar is not: a rim sets the name off both
    pen.strokeStyle = ink("back");
    pen.lineWidth = 3;
    pen.lineJoin = "round";
    pen.strokeText(...name);
  }
  pen.fillStyle = span.critical && !span.holes.length ? ink("onbar") : ink("text");
  pen.fillText(...name);
  pen.restore();
}

function gaps({ breaks, tall }, { pen, ink, x, wide }) {
  for (const gap of breaks) {
    const left = Math.round(x(gap.at)) + 0.5;
    if (left < 0 || left > wide) continue;
    pen.strokeStyle = ink("bad");
    pen.lineWidth = 1.5;
    pen.setLineDash([3, 3]);
    pen.beginPath();
    pen.moveTo(left, 0);
    pen.lineTo(left, tall);
    pen.stroke();
    pen.setLineDash([]);
    pen.fillStyle = ink("bad");
    const label = `stopped for ${duration(Math.max(0, gap.seconds))}`;
    const right = left + pen.measureText(label).width + 8 > wide;
    pen.textAlign = right ? "right" : "left";
    pen.fillText(label, right ? left - 5 : left + 5, 24);
    pen.textAlign = "left";
  }
}
