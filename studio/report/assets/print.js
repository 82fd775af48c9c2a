// What is printed: the run as an outline, and the frame that is open.

function printed() {
  const paper = document.getElementById("print");
  const model = page_model;
  const rows = page_tree.rows.map(({ id }) => {
    const frame = model.frames.get(id);
    const answer = frame.answer === null ? "" : model.events[frame.answer].answer;
    const item = h("li", {}, mark(frame.state), " ", h("b", { text: id }), frame.kind ? ` ${line(frame.kind, 12)}` : "", ": ", marked(line(frame.task, 300)),
      h("span", { class: "dim", text: ` (${state_name(model, frame.state)}, ${plural(frame.sum.calls, "call")}, ${short(frame.sum.input + frame.sum.output)} tokens)` }), answer ? h("div", { class: "said", text: line(answer, 240) }) : null);
    item.style.marginLeft = `${Math.min(frame.depth, 12) * 12}px`;
    return item;
  });
  paper.replaceChildren(h("h2", { text: `Frames (${number(page_tree.rows.length)})` }), h("ol", {}, ...rows));
}
