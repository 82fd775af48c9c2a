// Time at work: the sessions of a run end to end, without the hours between them.

const axes = new WeakMap();
const paths = new WeakMap();

function axis_of(model) {
  if (!axes.has(model)) axes.set(model, axis(model.sessions));
  return axes.get(model);
}

function critical_of(model) {
  if (!paths.has(model)) paths.set(model, critical(model));
  return paths.get(model);
}

function axis(sessions) {
  let total = 0;
  const parts = sessions.map((session) => {
    const part = { begin: session.begin, end: session.last, at: total };
    total += Math.max(0, session.last - session.begin);
    return part;
  });
  const at = (time) => {
    let part = parts[0];
    for (const next of parts) if (next.begin <= time) part = next;
    return part ? part.at + Math.max(0, Math.min(time, part.end) - part.begin) : 0;
  };
  const breaks = parts.slice(1).map((part, place) => ({ at: part.at, seconds: part.begin - parts[place].end }));
  return { total, at, breaks };
}

// Return the spans in lanes, none of which holds two at once, and how many were served and waited for a place over time.
function laid_out(model) {
  const time = axis_of(model);
  const path = critical_of(model);
  const free = [];
  const placed = model.spans.map((span) => ({ ...span, asked: time.at(span.begin), from: time.at(span.at), to: time.at(span.end), critical: path.on.has(span.frame),
    holes: span.pauses.map((pause) => [time.at(Math.max(span.at, pause.begin)), time.at(pause.end)]) }));
  placed.sort((a, b) => a.from - b.from || a.place - b.place);
  for (const span of placed) {
    let lane = free.findIndex((until) => until <= span.from + 1e-9);
    if (lane < 0) lane = free.length;
    free[lane] = span.to;
    span.lane = lane;
  }
  return { spans: placed, lanes: free.length, ...levels(placed) };
}

// Return how many spans were served (`served`) and waited for a place (`queued`), as steps of [time, count].
function levels(spans) {
  const served = [];
  const queued = [];
  for (const span of spans) {
    if (span.to > span.from) served.push([span.from, 1], [span.to, -1]);
    if (span.from > span.asked) queued.push([span.asked, 1], [span.from, -1]);
  }
  return { served: stairs(served), queued: stairs(queued) };
}

function stairs(edges) {
  edges.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const out = [[0, 0]];
  let now = 0;
  for (const [at, by] of edges) {
    now += by;
    if (out.at(-1)[0] === at) out.at(-1)[1] = now;
    else out.push([at, now]);
  }
  return out;
}

function level_at(steps, time) {
  let [low, high] = [0, steps.length - 1];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (steps[middle][0] <= time) low = middle;
    else high = middle - 1;
  }
  return steps[low][1];
}

// Return round numbers from `from` to `to`, about `most` of them.
function ticks(from, to, most) {
  const raw = (to - from) / most;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = raw > 60 ? [60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400].find((one) => one >= raw) ?? 86400 * Math.ceil(raw / 86400) : [1, 2, 5, 10].find((one) => one * power >= raw) * power;
  const out = [];
  for (let at = Math.ceil(from / step) * step; at <= to + step / 1e6 && out.length < 100; at += step) out.push(at);
  return out;
}
