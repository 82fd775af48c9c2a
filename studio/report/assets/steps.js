// The stack at any step: the frames that were open after an event.

function steps_view(model, at) {
  const last = model.events.length - 1;
  const slider = h("input", { type: "range", min: 1, max: last + 1, value: at + 1, "aria-label": "Event" });
  const field = h("input", { type: "number", min: 1, max: last + 1, value: at + 1, "aria-label": "Event number" });
  const label = h("div", { class: "eventline", role: "status" });
  const stack = h("ol", { class: "stack", "aria-label": "Open frames" });
  const title = h("h3", {});
  let now = at;
  const show = (place, write = true) => {
    now = Math.max(0, Math.min(last, place));
    slider.value = field.value = now + 1;
    const event = model.events[now];
    slider.setAttribute("aria-valuetext", `event ${now + 1} of ${last + 1}: ${event.e} ${event.frame ?? ""}`);
    label.replaceChildren(h("b", { class: "num", text: `${number(now + 1)} of ${number(last + 1)}` }), h("span", { class: "when", text: `+${duration(axis_of(model).at(event.time))}` }), ...tale(model, event));
    const open = stack_at(model, now);
    title.textContent = open.length ? `Stack: ${plural(open.length, "open frame")}` : "Stack: empty";
    stack.replaceChildren(...open.slice(0, 500).map((entry) => stacked(model, entry, event.frame)));
    if (open.length > 500) stack.append(h("li", { class: "dim", text: `and ${number(open.length - 500)} more` }));
    if (write) history.replaceState(null, "", `#view=steps&event=${now + 1}`);
  };
  const button = (text, name, act) => h("button", { type: "button", "aria-label": name, title: name, on: { click: act } }, text);
  slider.addEventListener("input", () => show(slider.value - 1));
  field.addEventListener("change", () => show((Number(field.value) || 1) - 1));
  const by_frame = (step) => {
    let place = now + step;
    while (place >= 0 && place <= last && model.events[place].frame === model.events[now].frame) place += step;
    show(place);
  };
  const view = h("article", { class: "steps" }, h("h2", { text: "Steps" }),
    h("div", { class: "controls" }, button("⇤", "Previous frame's event", () => by_frame(-1)), button("‹", "Previous event ( [ )", () => show(now - 1)), slider, button("›", "Next event ( ] )", () => show(now + 1)), button("⇥", "Next frame's event", () => by_frame(1)), field),
    label, title, stack);
  show(at, false);
  return Object.assign(view, { step: (by) => show(now + by) });
}

function stacked(model, entry, current) {
  const frame = model.frames.get(entry.id);
  const item = h("li", { class: entry.id === current ? "current" : null }, frame_link(entry.id, model),
    entry.role ? h("span", { class: `role r-${line(entry.role, 12)}`, text: entry.role }) : null, entry.attempt > 1 ? h("span", { class: "tries", text: `attempt ${entry.attempt}` }) : null,
    h("span", { class: "said", text: line(frame.task, 110) }));
  item.style.marginLeft = `${Math.min(frame.depth, 16) * 18}px`;
  return item;
}

// Return what an event says, in a few words.
function tale(model, event) {
  const of = event.frame === undefined ? [] : [frame_link(event.frame, model)];
  const words = {
    run: () => `session ${event.session} began`,
    end: () => `session ended: ${event.result.status}`,
    frame: () => `made: ${line(event.task, 90)}`,
    step: () => `${event.role} began${event.attempt > 1 ? `, attempt ${event.attempt}` : ""}`,
    plan: () => `split into ${plural(event.subtasks.length, "subtask")}`,
    plan_refused: () => `plan refused: ${line(event.reason, 90)}`,
    approval: () => `plan ${event.decision === "asked" ? "put to a person" : event.decision}`,
    answer: () => `answered: ${line(event.answer, 90)}`,
    verdict: () => `${event.accepted ? "accepted" : "rejected"}${event.feedback ? `: ${line(event.feedback, 90)}` : ""}`,
    call: () => `${event.role}: ${event.saved ? "a saved reply" : `a reply after ${duration(event.seconds)}`}`,
    tool: () => `tool ${line(event.tool, 40)} ${event.ok ? "gave its output" : "failed"}`,
    cell: () => `code ran${event.error ? ", and failed" : event.launches.length ? `, and waits for ${plural(event.launches.length, "subagent")}` : ""}`,
    findings: () => `found ${plural(event.files.length, "file")}`,
    assigned: () => `assigned to ${line(event.agent, 40)}`,
    wait: () => `pause of ${duration(event.seconds)}: ${line(event.reason, 90)}`,
    limit: () => `limit ${event.limit}: ${line(event.reason, 90)}`,
    done: () => (event.success ? "done" : "failed"),
  }[event.e];
  return [...of, h("span", { class: "said", text: words ? words() : event.e })];
}
