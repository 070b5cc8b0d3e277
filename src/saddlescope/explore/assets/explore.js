// The live page: reads the controls, asks the server for a run, draws its answer, and keeps the address in step.
// One run at a time: a new one waits for a short one that is nearly done, and stops a long one.
"use strict";

(() => {
  const { colors, element, faint, Panel, Film, swatch, switches } = saddlescope;

  // ---- the first page: thumbnails, which the workers make, and the search ----

  const NAMED = 5; // series that a card names
  const asset = (address, alt) => element("img", { src: address, alt });

  async function thumbnails() {
    for (const card of document.querySelectorAll("[data-toy]")) {
      const answer = await fetch(`thumbnail/${card.dataset.toy}`).then((r) => r.json()).catch(() => ({}));
      if (!answer.light) continue;
      const dark = element("source", { srcset: answer.dark, media: "(prefers-color-scheme: dark)" });
      card.querySelector(".thumbnail").replaceChildren(element("picture", {}, dark, asset(answer.light, "")));
      const named = answer.legend.slice(0, NAMED).map((one) => element("li", {}, swatch(one), one.name));
      if (answer.legend.length > NAMED) named.push(element("li", {}, `and ${answer.legend.length - NAMED} more`));
      card.querySelector(".card-legend").replaceChildren(...named);
      card.dataset.ready = "yes";
    }
  }

  function search() {
    const find = document.querySelector("#find");
    const found = document.querySelector("#found");
    find.addEventListener("input", () => {
      const words = find.value.toLowerCase().split(/\s+/);
      let count = 0;
      for (const group of document.querySelectorAll(".group")) {
        let some = 0;
        for (const item of group.querySelectorAll("li")) {
          item.hidden = !words.every((word) => item.textContent.toLowerCase().includes(word));
          some += !item.hidden;
        }
        group.hidden = !some;
        count += some;
      }
      found.textContent = find.value ? `${count} found` : "";
    });
  }

  if (document.querySelector("[data-toy]")) thumbnails();
  if (document.querySelector("#find")) search();
  const place = document.querySelector(".explore");
  if (!place) return;

  // ---- controls: the text of each value, and the position of its slider ----

  const STEPS = 200; // positions of a logarithmic slider

  class Control {
    constructor(box) {
      Object.assign(this, { box, name: box.dataset.name, kind: box.dataset.kind, usual: box.dataset.default });
      this.exact = box.querySelector(".exact");
      this.slide = box.querySelector(".slide");
      for (const key of ["low", "high", "step"]) this[key] = Number(box.dataset[key]);
      this.integer = box.dataset.integer === "yes";
      if (this.slide) {
        const count = this.step ? Math.round((this.high - this.low) / this.step) : STEPS;
        Object.assign(this.slide, { min: 0, max: count, step: 1 });
        this.follow();
      }
    }

    get text() {
      return this.kind === "switch" ? String(this.exact.checked) : this.exact.value.trim();
    }

    set text(text) {
      if (this.kind === "switch") this.exact.checked = text.toLowerCase() === "true";
      else this.exact.value = text;
      this.follow();
    }

    get changed() {
      const same = this.slide ? Number(this.text) === Number(this.usual) : this.text === this.usual;
      return !(same && this.text !== "");
    }

    // The value at the slider's position, in as few digits as the step needs.
    get slid() {
      const at = Number(this.slide.value);
      if (at === Number(this.slide.max)) return String(this.high);
      if (this.step) return String(Number((this.low + at * this.step).toPrecision(10)));
      const value = this.low * (this.high / this.low) ** (at / STEPS);
      return String(this.integer ? Math.round(value) : Number(value.toPrecision(3)));
    }

    // Takes the position nearest to a number.
    slideTo(value) {
      this.text = String(Math.min(this.high, Math.max(this.low, value)));
      this.text = this.slid;
    }

    follow() {
      if (!this.slide) return;
      const value = Number(this.text);
      const log = Math.log(Math.max(value, this.low) / this.low) / Math.log(this.high / this.low);
      if (Number.isFinite(value)) this.slide.value = this.step ? (value - this.low) / this.step : STEPS * log;
      this.slide.setAttribute("aria-valuetext", this.text);
      this.slide.style.setProperty("--at", `${(100 * this.slide.value) / this.slide.max}%`);
      this.box.classList.toggle("changed", this.changed);
    }
  }

  const form = place.querySelector("form");
  const controls = [...form.querySelectorAll("[data-name]")].map((box) => new Control(box));
  const named = new Map(controls.map((control) => [control.name, control]));
  const { entry, size, usual, root } = place.dataset;

  const settings = () => Object.fromEntries(controls.filter((c) => c.changed).map((c) => [c.name, c.text]));

  function address(chosen) {
    const query = new URLSearchParams(size === usual ? {} : { size });
    for (const [name, text] of Object.entries(chosen)) query.set(name, text);
    const text = query.toString();
    return location.pathname + (text ? `?${text}` : "");
  }

  function fromAddress() {
    const query = new URLSearchParams(location.search);
    for (const control of controls) control.text = query.get(control.name) ?? control.usual;
    const odd = [...query.keys()].find((name) => name !== "size" && !named.has(name));
    if (odd) refuse(`There is no parameter '${odd}' here; it is left out.`);
  }

  // ---- pictures ----

  // Colours a plot before it is drawn: `paint`, which changes a drawn one, draws it once more for each kind of trace.
  function tint({ data, layout }) {
    const theme = colors();
    for (const trace of data) {
      const color = theme.of(trace.meta.color);
      if (trace.meta.kind === "line" && trace.mode === "lines") trace.line.color = color;
      else if (trace.meta.kind === "line") trace.marker.color = color;
      else if (trace.meta.kind === "band") trace.fillcolor = faint(color);
      else if (trace.meta.kind === "kinds") {
        const kinds = trace.meta.colors.map(theme.of);
        trace.colorscale = kinds.flatMap((of, k) => [k, k + 1].map((edge) => [edge / kinds.length, of]));
        trace.textfont = { color: theme.surface };
      }
    }
    layout.meta.marks.forEach((mark, k) => {
      layout.shapes[k].line.color = theme.of(mark.color);
      if (layout.shapes[k].label) layout.shapes[k].label.font.color = theme.of(mark.color);
    });
    for (const axis of [layout.xaxis, layout.yaxis]) {
      Object.assign(axis, { gridcolor: theme.grid, linecolor: theme.grid, tickcolor: theme.grid });
    }
    layout.font.color = theme.ink;
    layout.hoverlabel = { ...layout.hoverlabel, bgcolor: theme.surface, font: { color: theme.ink } };
    layout.modebar = { bgcolor: "rgba(0,0,0,0)", color: theme.muted, activecolor: theme.ink };
  }

  class LivePanel extends Panel {
    chosen = {};
    hidden = new Set();

    show(series, on) {
      this.hidden[on ? "delete" : "add"](series);
      super.show(series, on);
    }

    scale(axis, type) {
      this.chosen[axis] = type;
      Plotly.relayout(this.plot, { [`${axis}axis.autorangeoptions`]: this.frame(axis, type) });
      super.scale(axis, type);
    }

    // The limits of an axis that show the current run alone: curves of earlier ones may leave them.
    frame(axis, type) {
      const log = type === "log";
      const own = this.spec.data.filter(({ meta }) => !meta.before).flatMap((trace) => trace[axis]);
      const marks = this.spec.layout.shapes.filter((mark) => mark[`${axis}ref`] === axis).map((mark) => mark[`${axis}0`]);
      const shown = [...own, ...marks].filter((value) => Number.isFinite(value) && (!log || value > 0));
      if (!shown.length || !this.spec.data.some(({ meta }) => meta.before)) return null;
      const at = shown.map((value) => (log ? Math.log10(value) : value));
      const [low, high] = [at.reduce((a, b) => Math.min(a, b)), at.reduce((a, b) => Math.max(a, b))];
      const edge = 0.05 * (high - low) || 0.5 * Math.abs(high) || 1;
      const ends = [low - edge, high + edge].map((end) => (log ? 10 ** end : end));
      return { clipmin: ends[0], clipmax: ends[1] };
    }

    draw() {
      this.limit();
      return super.draw().then(() => this.grip());
    }

    limit() {
      for (const name of ["x", "y"]) {
        const axis = this.spec.layout[`${name}axis`];
        axis.autorangeoptions = this.frame(name, axis.type);
      }
    }

    // A point that moves parameters has a handle above it, for mouse, finger and keyboard.
    grip() {
      const trace = this.plot.data.find(({ meta }) => meta.moves);
      if (!trace) return;
      const [x, y] = trace.meta.moves.map((name) => named.get(name));
      const put = () => {
        const { xaxis, yaxis } = this.plot._fullLayout;
        this.handle.style.left = `${this.plot.offsetLeft + xaxis._offset + xaxis.d2p(Number(x.text))}px`;
        this.handle.style.top = `${this.plot.offsetTop + yaxis._offset + yaxis.d2p(Number(y.text))}px`;
        this.handle.setAttribute("aria-valuenow", x.text);
        this.handle.setAttribute("aria-valuetext", `${x.name} ${x.text}, ${y.name} ${y.text}`);
      };
      if (!this.handle) {
        this.handle = element("div", { className: "handle", tabIndex: 0, title: `Drag to change ${x.name} and ${y.name}` });
        this.handle.setAttribute("role", "slider");
        this.handle.setAttribute("aria-label", `${trace.name}: ${x.name} and ${y.name}`);
        const move = (across, up) => {
          x.slideTo(across);
          y.slideTo(up);
          put();
          if (auto.checked) ask(settings(), false);
        };
        this.handle.addEventListener("pointerdown", ({ pointerId }) => this.handle.setPointerCapture(pointerId));
        this.handle.addEventListener("pointermove", ({ pointerId, clientX, clientY }) => {
          if (!this.handle.hasPointerCapture(pointerId)) return;
          const { left, top } = this.plot.getBoundingClientRect();
          const { xaxis, yaxis } = this.plot._fullLayout;
          move(xaxis.p2d(clientX - left - xaxis._offset), yaxis.p2d(clientY - top - yaxis._offset));
        });
        this.handle.addEventListener("pointerup", () => auto.checked && settle());
        this.handle.addEventListener("keydown", (event) => {
          const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key] ?? [0, 0];
          if (!dx && !dy) return;
          event.preventDefault();
          move(Number(x.text) + dx * x.step, Number(y.text) + dy * y.step);
          if (auto.checked) settle();
        });
        this.element.append(this.handle);
        this.plot.on("plotly_afterplot", put);
      }
      put();
    }

    update(spec) {
      const layout = spec.layout;
      this.ranges = { x: layout.xaxis.range, y: layout.yaxis.range };
      this.types = { x: layout.xaxis.type, y: layout.yaxis.type };
      for (const [axis, type] of Object.entries(this.chosen)) {
        if (layout[`${axis}axis`].type === type || !layout.meta.log[axis]) continue;
        layout[`${axis}axis`].type = type;
        delete layout[`${axis}axis`].range;
        if (axis === "y") for (const trace of spec.data) if (trace.meta.y) trace.y = trace.meta.y[type];
      }
      if (matchMedia("(pointer: coarse)").matches) {
        layout.dragmode = false;
        layout.margin.t = 36;
      }
      for (const trace of spec.data) if (this.hidden.has(trace.meta.series)) trace.visible = false;
      this.spec = spec;
      this.limit();
      this.opacity = spec.data.map(({ opacity = 1 }) => opacity);
      this.pointed = null;
      tint(spec);
      return Plotly.react(this.plot, spec.data, layout, spec.config).then(() => {
        for (const series of this.hidden) this.show(series, false); // its marks
        this.grip();
        return this.ticks();
      });
    }
  }

  // One figure: its words, switches and panels, which stay when a new run has the same ones.
  class Picture {
    constructor(figure) {
      this.shape = Picture.shapeOf(figure);
      this.title = element("h2");
      this.caption = element("p", { className: "caption" });
      this.legend = element("div", { className: "legend" });
      this.legend.setAttribute("role", "group");
      this.legend.setAttribute("aria-label", "Series shown");
      this.panels = figure.panels.map((spec) => new LivePanel(spec, figure.title, figure.film));
      const grid = element("div", { className: "panels" }, ...this.panels.map((panel) => panel.element));
      grid.style.setProperty("--columns", Math.min(figure.columns, Math.max(1, figure.panels.length)));
      this.film = element("div", { className: "film" });
      this.table = element("div", { className: "table" });
      const views = element("div", { className: "views" }, ...(figure.panels.length ? [grid] : []));
      if (figure.film) views.append(this.film);
      this.element = element("section", { className: "figure" }, this.title, this.legend, views, this.caption, this.table);
    }

    static shapeOf(figure) {
      return JSON.stringify([figure.name, figure.columns, figure.panels.map((p) => [p.layout.meta.title, p.layout.meta.log])]);
    }

    async draw(figure) {
      this.words(figure);
      await Promise.all(this.panels.map((panel) => panel.draw()));
      this.picture(figure);
    }

    async update(figure) {
      this.words(figure);
      await Promise.all(figure.panels.map((spec, k) => this.panels[k].update(spec)));
      this.picture(figure);
    }

    words(figure) {
      this.title.textContent = figure.title;
      this.caption.textContent = figure.caption;
      this.table.innerHTML = figure.table; // escaped by the worker
      const key = JSON.stringify(figure.legend);
      if (key === this.legendKey) return;
      this.legendKey = key;
      for (const panel of this.panels) panel.hidden.clear();
      this.legend.replaceChildren();
      switches(this.legend, figure.legend, this.panels);
    }

    picture(figure) {
      if (!figure.film) return;
      this.film.replaceChildren();
      this.film.dataset.frames = figure.frames;
      const film = new Film(this.film, figure.film, figure.title, this.panels);
      film.show(film.last);
    }
  }

  const SHADES = [0.55, 0.4, 0.28]; // of the runs before, the last one first

  // Returns a figure with the curves of earlier runs below its own, in grey.
  function overlaid(figure, ghosts) {
    const copy = structuredClone(figure);
    copy.panels.forEach((panel, k) => {
      const before = ghosts.flatMap((ghost, n) => {
        const same = ghost.answer.figures.find((one) => one.name === figure.name)?.panels[k];
        if (!same || same.layout.meta.title !== panel.layout.meta.title) return [];
        const lines = same.data.filter((trace) => trace.meta.kind === "line" && trace.mode === "lines");
        return lines.map((trace) => ({
          ...structuredClone(trace),
          opacity: SHADES[n] * (trace.opacity ?? 1),
          line: { ...trace.line, width: 1 },
          name: ghost.answer.label,
          hovertemplate: "<b>%{fullData.name}</b><extra></extra>",
          meta: { kind: "line", color: null, series: "", before: true },
        }));
      });
      panel.data.unshift(...before);
    });
    return copy;
  }

  const pictures = place.querySelector(".pictures");
  let shown = new Map();
  let drawing = Promise.resolve();

  function draw(run) {
    drawing = drawing.then(() => drawNow(run)).catch((error) => tell(`The picture cannot be drawn: ${error.message}`));
    return drawing;
  }

  async function drawNow(run) {
    const ghosts = overlay.checked ? runs.filter((one) => one !== run).slice(0, SHADES.length) : [];
    const kept = new Map();
    const work = run.answer.figures.map((figure) => {
      const made = overlaid(figure, ghosts);
      const same = figure.film ? null : shown.get(Picture.shapeOf(figure)); // a film's panels have dots of their own
      const picture = same ?? new Picture(made);
      kept.set(picture.shape, picture);
      return { picture, made, same };
    });
    const wanted = work.map(({ picture }) => picture.element);
    if (wanted.length !== pictures.children.length || wanted.some((one, k) => pictures.children[k] !== one)) {
      pictures.replaceChildren(...wanted);
    }
    shown = kept;
    for (const { picture, made, same } of work) await (same ? picture.update(made) : picture.draw(made));
    document.documentElement.dataset.drawn = String(++drawn);
  }

  let drawn = 0;
  const repaint = () => shown.forEach((picture) => picture.panels.forEach((panel) => panel.paint()));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);

  // ---- the last runs ----

  const overlay = place.querySelector(".overlay");
  const list = place.querySelector(".runs-list");
  const KEPT = 8;
  const runs = []; // settled ones, the latest first
  let current = null;

  function keep(run) {
    const same = runs.findIndex((one) => one.key === run.key);
    if (same >= 0) runs.splice(same, 1);
    runs.unshift(run);
    runs.length = Math.min(runs.length, KEPT);
    listRuns();
  }

  function listRuns() {
    list.replaceChildren(
      ...runs.map((run) => {
        const signs = element("span", { className: "signs" });
        for (const { outcome, sign, claim, meaning } of run.answer.signs) {
          const one = element("span", { className: kebab(outcome), title: meaning }, sign);
          one.setAttribute("aria-label", `${claim}: ${outcome}`);
          one.setAttribute("role", "img");
          signs.append(one);
        }
        const again = element("button", { type: "button" }, run.answer.label);
        if (run === current) again.setAttribute("aria-current", "true");
        again.addEventListener("click", () => {
          for (const control of controls) control.text = run.settings[control.name] ?? control.usual;
          settle();
        });
        return element("li", {}, again, signs);
      }),
    );
  }

  const kebab = (outcome) => outcome.replace(" ", "-");

  // The verdicts beside the picture, so that they are seen to change with it.
  function sign(answer) {
    place.querySelector(".status .signs").replaceChildren(
      ...answer.signs.slice(0, 6).map(({ outcome, sign, claim, meaning }) => {
        const said = element("a", { href: "#claims", title: meaning }, `${sign} ${claim}: ${outcome}`);
        return element("li", { className: kebab(outcome) }, said);
      }),
    );
  }

  overlay.addEventListener("change", () => current && draw(current));

  // ---- running ----

  const state = place.querySelector(".state");
  const bar = place.querySelector("progress");
  const cancel = place.querySelector(".cancel");
  const problem = place.querySelector(".problem");
  const gone = place.querySelector(".gone");
  const save = place.querySelector(".save");
  const saved = place.querySelector(".saved");
  const auto = place.querySelector(".auto");
  const client = [...crypto.getRandomValues(new Uint32Array(4))].map((n) => n.toString(16)).join("");
  const SHORT = 1500; // milliseconds: runs that may follow a moving slider, and are not stopped by the next one

  let running = null;
  let waiting = null;
  let usually = 0; // milliseconds of the last run in its process
  const toy = place.dataset.live === "yes"; // whose runs are short, but for the first, which compiles

  const tell = (text) => (state.textContent = text);

  function refuse(sentence) {
    problem.textContent = sentence;
    problem.hidden = !sentence;
    const culprit = [...named].find(([name]) => sentence.startsWith(`${name} must`));
    for (const [name, control] of named) control.box.classList.toggle("wrong", name === culprit?.[0]);
  }

  // Asks for a run; `settled` ones are kept in the list, others only follow a moving slider.
  function ask(chosen, settled) {
    const next = { chosen, settled, key: JSON.stringify(chosen) };
    if (!running) return start(next);
    if (running.key === next.key) return void (running.settled ||= settled);
    waiting = next;
    if (performance.now() - running.since > SHORT) running.abort.abort();
    else running.impatient = setTimeout(() => waiting && running?.abort.abort(), SHORT);
  }

  async function start(next) {
    running = { ...next, abort: new AbortController(), since: performance.now() };
    const mine = running;
    const slow = setTimeout(() => busy(true), 300);
    try {
      const answer = await post("run", mine.chosen, mine.abort.signal, (fraction, note) => {
        bar.value = fraction;
        tell(`${Math.round(100 * fraction)} %${note ? ` · ${note}` : ""}`);
      });
      if (answer.done) await show(mine, answer.done);
      else if (answer.refused) refuse(answer.refused);
      else if (answer.failed) tell(answer.failed);
      else if (answer.stopped && !waiting) tell("Cancelled.");
    } catch (error) {
      if (error.name !== "AbortError") lost(mine);
      else if (!waiting) tell("Cancelled.");
    } finally {
      clearTimeout(slow);
      clearTimeout(mine.impatient);
      running = null;
      if (waiting) {
        const next = waiting;
        waiting = null;
        start(next);
      } else {
        busy(false);
      }
    }
  }

  function busy(on) {
    bar.hidden = cancel.hidden = !on;
    place.classList.toggle("busy", on);
    if (on) bar.removeAttribute("value");
  }

  // Sends a request and reads its lines; returns the last one.
  async function post(task, chosen, signal, report) {
    const body = JSON.stringify({ client, entry, size, settings: chosen });
    const headers = { "Content-Type": "application/json" };
    const response = await fetch(`${root}${task}`, { method: "POST", headers, body, signal });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    let last = {};
    for (;;) {
      const { value, done } = await reader.read();
      text += value ?? "";
      const lines = text.split("\n");
      text = done ? "" : lines.pop();
      for (const line of lines.filter(Boolean)) {
        last = JSON.parse(line);
        if (last.progress) report(...last.progress);
      }
      if (done) return last;
    }
  }

  async function show(asked, answer) {
    usually = 1000 * answer.seconds;
    const run = { key: asked.key, settings: asked.chosen, answer };
    current = run;
    refuse("");
    save.disabled = false;
    saved.textContent = "";
    if (asked.settled) keep(run);
    await draw(run);
    sign(answer);
    place.querySelector(".verdicts").innerHTML = answer.claims; // escaped by the worker
    for (const box of place.querySelectorAll("[data-copy]")) {
      box.querySelector("code").textContent = answer[box.dataset.copy];
    }
    tell(`Computed in ${answer.seconds < 10 ? answer.seconds.toFixed(2) : answer.seconds.toFixed(0)} s.`);
    place.dataset.shown = asked.key;
    place.dataset.took = Math.round(performance.now() - asked.since);
  }

  // The server does not answer: wait for a new one, then go on.
  function lost(asked) {
    gone.hidden = false;
    tell("");
    const wait = setInterval(async () => {
      try {
        if (!(await fetch(`${root}alive`)).ok) return;
      } catch {
        return;
      }
      clearInterval(wait);
      gone.hidden = true;
      ask(settings(), asked.settled);
    }, 1000);
  }

  // A value that is final: it goes into the address and the list.
  function settle() {
    const chosen = settings();
    const target = address(chosen);
    if (target !== location.pathname + location.search) history.pushState(null, "", target);
    ask(chosen, true);
  }

  for (const control of controls) {
    control.slide?.addEventListener("input", () => {
      control.text = control.slid;
      if (auto.checked && (toy || usually < SHORT)) ask(settings(), false);
    });
    control.slide?.addEventListener("change", () => auto.checked && settle());
    control.exact.addEventListener("change", () => {
      control.follow();
      if (auto.checked) settle();
    });
  }
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    settle();
  });
  form.querySelector(".reset").addEventListener("click", () => {
    for (const control of controls) control.text = control.usual;
    settle();
  });
  form.querySelector("#size")?.addEventListener("change", (event) => {
    const chosen = event.target.value;
    location.assign(location.pathname + (chosen === usual ? "" : `?size=${chosen}`));
  });
  const stop = () => {
    waiting = null;
    running?.abort.abort();
  };
  cancel.addEventListener("click", stop);
  addEventListener("keydown", (event) => event.key === "Escape" && stop());
  addEventListener("popstate", () => {
    fromAddress();
    ask(settings(), true);
  });

  save.addEventListener("click", async () => {
    save.disabled = true;
    saved.textContent = "Saving …";
    try {
      const answer = await post("save", current.settings, undefined, () => {});
      saved.textContent = answer.done ? `Stored in ${answer.done.file}.` : (answer.refused ?? answer.failed ?? "Not stored.");
    } catch {
      saved.textContent = "The server does not answer.";
    }
    save.disabled = false;
  });
  for (const box of place.querySelectorAll("[data-copy]")) {
    const copy = box.querySelector(".copy");
    const label = copy.textContent;
    copy.addEventListener("click", () =>
      navigator.clipboard.writeText(box.querySelector("code").textContent).then(() => {
        copy.textContent = "Copied";
        setTimeout(() => (copy.textContent = label), 1500);
      }),
    );
  }

  fromAddress();
  ask(settings(), true);
})();
