// Draws the figures of a page from the JSON beside them: one legend of switches a figure, logarithmic axes on request,
// colours from the style sheet, so that plots follow the reader's light or dark system, and the light one on paper.
// A series that is pointed at, in the legend or in a plot, stands out from all others.
// Images over steps have a slider, which moves dots along the curves whose points have steps.
"use strict";

(() => {
  const root = document.documentElement;
  const colors = () => {
    const style = getComputedStyle(root);
    const variable = (name) => style.getPropertyValue(`--${name}`).trim();
    return {
      ink: variable("ink"),
      muted: variable("muted"),
      grid: variable("grid"),
      surface: variable("surface"),
      of: (index) => variable(index === null ? "muted" : `series-${index % variable("series-count")}`),
    };
  };
  const faint = (hex) => `${hex}2e`; // 0.18, as in the static pictures
  const BEHIND = 0.12; // opacity of all series but the one pointed at
  const FEW = 8; // integers on an axis: with fewer, every one has a tick

  const element = (tag, properties, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };

  // Words with their subscripts set: W_K becomes W with a small K.
  const formula = (text) => text.split(/\bW_([A-Z])\b/).flatMap((part, k) => (k % 2 ? ["W", element("sub", {}, part)] : [part]));

  const button = (label, pressed, act) => {
    const made = element("button", { type: "button" }, label);
    made.setAttribute("aria-pressed", pressed);
    made.addEventListener("click", () => {
      const now = made.getAttribute("aria-pressed") !== "true";
      made.setAttribute("aria-pressed", now);
      act(now);
    });
    return made;
  };

  class Panel {
    constructor(spec, name, film) {
      this.spec = spec;
      const meta = spec.layout.meta;
      this.followed = film ? spec.data.filter((trace) => trace.meta.at) : [];
      this.first = spec.data.length; // of the dots
      spec.data.push(
        ...this.followed.map(({ line, meta: { color, series } }) => ({
          type: "scatter",
          mode: "markers",
          x: [null],
          y: [null],
          hoverinfo: "skip",
          marker: { size: 6 + 2.5 * (line ? line.width : 1), line: { width: 1.5 } },
          meta: { kind: "dot", color, series },
        })),
      );
      this.plot = element("div", { className: "plot" });
      this.plot.setAttribute("role", "figure");
      this.plot.setAttribute("aria-label", meta.title ? `${name}: ${meta.title}` : name);
      const axes = element("div", { className: "axes" });
      for (const axis of ["x", "y"]) {
        if (!meta.log[axis]) continue;
        const pressed = spec.layout[`${axis}axis`].type === "log";
        const made = button(`log ${axis}`, pressed, (on) => this.scale(axis, on ? "log" : "linear"));
        made.setAttribute("aria-label", `Logarithmic ${axis} axis of ${meta.title || name}`);
        axes.append(made);
      }
      this.element = element("div", { className: "panel" });
      this.element.append(element("div", { className: "head" }, element("h3", {}, ...formula(meta.title)), axes), this.plot);
    }

    draw() {
      const { data, layout, config } = this.spec;
      // A finger that moves over a plot wants to scroll the page.
      if (matchMedia("(pointer: coarse)").matches) {
        layout.dragmode = false;
        layout.margin.t = 36; // where touch screens always show the buttons for zooming
      }
      this.ranges = { x: layout.xaxis.range, y: layout.yaxis.range };
      this.types = { x: layout.xaxis.type, y: layout.yaxis.type };
      this.opacity = data.map((trace) => trace.opacity ?? 1);
      this.pointed = null;
      return Plotly.newPlot(this.plot, data, layout, config).then(() => {
        this.paint();
        this.plot.on("plotly_relayout", () => this.ticks());
        this.plot.on("plotly_hover", ({ points }) => this.pointing?.(points[0].data.meta.series || null));
        this.plot.on("plotly_unhover", () => this.pointing?.(null));
        return this.ticks();
      });
    }

    // Integer axes have no ticks between integers, however far the reader zooms in.
    ticks() {
      const layout = {};
      for (const axis of ["x", "y"]) {
        const { type, range } = this.plot._fullLayout[`${axis}axis`];
        const few = this.spec.layout.meta.integer[axis] && type === "linear" && Math.abs(range[1] - range[0]) < FEW;
        if (few === (this.plot.layout[`${axis}axis`].dtick === 1)) continue;
        layout[`${axis}axis.tickmode`] = few ? "linear" : "auto";
        layout[`${axis}axis.dtick`] = few ? 1 : null;
      }
      return Object.keys(layout).length ? Plotly.relayout(this.plot, layout) : null;
    }

    // Makes one series stand out, or none.
    point(series) {
      if (!this.plot.data || this.pointed === series) return;
      this.pointed = series;
      const behind = (of) => series !== null && of !== series;
      const single = ({ meta }) => meta.kind !== "heat" && meta.kind !== "kinds";
      const opacity = this.plot.data.map(({ meta }, k) => (behind(meta.series) ? BEHIND : 1) * (this.opacity[k] ?? 1));
      const all = this.plot.data.flatMap((trace, k) => (single(trace) ? [k] : []));
      if (all.length) Plotly.restyle(this.plot, { opacity: all.map((k) => opacity[k]) }, all);
      const marks = this.spec.layout.meta.marks.map((mark, k) => [`shapes[${k}].opacity`, behind(mark.series) ? BEHIND : 1]);
      if (marks.length) Plotly.relayout(this.plot, Object.fromEntries(marks));
    }

    paint() {
      const theme = colors();
      const each = this.plot.data.map((trace) => theme.of(trace.meta.color));
      const axis = { gridcolor: theme.grid, linecolor: theme.grid, tickcolor: theme.grid };
      const layout = {
        "font.color": theme.ink,
        "hoverlabel.bgcolor": theme.surface,
        "hoverlabel.font.color": theme.ink,
        "modebar.bgcolor": "rgba(0,0,0,0)",
        "modebar.color": theme.muted,
        "modebar.activecolor": theme.ink,
      };
      for (const [name, color] of Object.entries(axis)) {
        layout[`xaxis.${name}`] = color;
        layout[`yaxis.${name}`] = color;
      }
      this.spec.layout.meta.marks.forEach((mark, k) => {
        layout[`shapes[${k}].line.color`] = theme.of(mark.color);
        if (this.plot.layout.shapes[k].label) layout[`shapes[${k}].label.font.color`] = theme.of(mark.color);
      });
      const indices = (kind, also = () => true) =>
        this.plot.data.flatMap((trace, k) => (trace.meta.kind === kind && also(trace) ? [k] : []));
      const restyle = (name, chosen, color) =>
        chosen.length && Plotly.restyle(this.plot, { [name]: chosen.map((k) => color(each[k])) }, chosen);
      restyle("line.color", indices("line", (trace) => trace.mode === "lines"), (color) => color);
      restyle("marker.color", indices("line", (trace) => trace.mode === "markers"), (color) => color);
      restyle("marker.color", indices("dot"), (color) => color);
      restyle("marker.line.color", indices("dot"), () => theme.surface);
      restyle("fillcolor", indices("band"), faint);
      indices("kinds").forEach((k) => {
        const kinds = this.plot.data[k].meta.colors.map(theme.of);
        const scale = kinds.flatMap((color, place) => [place, place + 1].map((edge) => [edge / kinds.length, color]));
        Plotly.restyle(this.plot, { colorscale: [scale], "textfont.color": theme.surface }, [k]);
      });
      Plotly.relayout(this.plot, layout);
    }

    scale(axis, type) {
      const given = this.types[axis] === type && this.ranges[axis];
      const layout = { [`${axis}axis.type`]: type };
      layout[given ? `${axis}axis.range` : `${axis}axis.autorange`] = given ? [...given] : true;
      if (axis === "y") {
        this.plot.data.forEach((trace, k) => {
          if (trace.meta.y) Plotly.restyle(this.plot, { y: [trace.meta.y[type]] }, [k]);
        });
      }
      Plotly.relayout(this.plot, layout);
    }

    show(series, on) {
      const chosen = this.plot.data.flatMap((trace, k) => (trace.meta.series === series ? [k] : []));
      if (chosen.length) Plotly.restyle(this.plot, { visible: on }, chosen);
      const layout = {};
      this.spec.layout.meta.marks.forEach((mark, k) => {
        if (mark.series === series) layout[`shapes[${k}].visible`] = on;
      });
      this.spec.layout.meta.pictures.forEach((name, k) => {
        if (name === series) layout[`images[${k}].visible`] = on;
      });
      if (Object.keys(layout).length) Plotly.relayout(this.plot, layout);
    }

    // Moves the dots to the last points that are not after a step.
    move(step) {
      if (!this.followed.length) return;
      const points = this.followed.map(({ x, y, meta }) => {
        const k = meta.at.findLastIndex((at) => at !== null && at <= step);
        return k < 0 ? [null, null] : [x[k], y[k]];
      });
      const dots = points.map((_, k) => this.first + k);
      Plotly.restyle(this.plot, { x: points.map(([x]) => [x]), y: points.map(([, y]) => [y]) }, dots);
    }
  }

  class Film {
    constructor(place, spec, name, panels) {
      Object.assign(this, { spec, name, panels, last: spec.steps.length - 1 });
      const { rows, columns, shape, width, height, across } = spec;
      this.frames = element("img", { src: place.dataset.frames, alt: "" });
      // A pixel less than a frame, which ends in a gap: rounding shows nothing of the next one.
      this.frames.style.width = `${(100 * across * width) / (width - 1)}%`;
      this.window = element("div", { className: "window" }, this.frames);
      this.window.style.aspectRatio = `${width - 1} / ${height - 1}`;
      this.window.setAttribute("role", "img");
      const labels = (kind, words) => element("div", { className: kind }, ...words.map((word) => element("span", {}, word)));
      const grid = element("div", { className: "grid" }, this.window);
      grid.style.setProperty("--width", `${shape[1] * Math.min(128, Math.max(48, 640 / shape[1]))}px`);
      if (rows.length) grid.prepend(labels("rows", rows));
      if (columns.length) grid.append(labels("columns", columns));
      if (this.last) place.append(this.controls());
      place.append(grid);
    }

    controls() {
      this.slider = element("input", { type: "range", min: 0, max: this.last, value: 0 });
      this.slider.setAttribute("aria-label", `${this.spec.unit} shown`);
      this.slider.addEventListener("input", () => {
        this.stop();
        this.show(Number(this.slider.value));
      });
      this.button = element("button", { type: "button", className: "play" }, "Play");
      this.button.addEventListener("click", () => (this.timer ? this.stop() : this.play()));
      const still = matchMedia("(prefers-reduced-motion: reduce)");
      const obey = () => {
        this.button.hidden = still.matches;
        this.stop();
      };
      still.addEventListener("change", obey);
      obey();
      addEventListener("beforeprint", () => {
        this.stop();
        this.show(this.last);
      });
      const step = (sign, label, by) => {
        const made = element("button", { type: "button", className: "step" }, sign);
        made.setAttribute("aria-label", label);
        made.addEventListener("click", () => {
          this.stop();
          this.show(Math.min(this.last, Math.max(0, Number(this.slider.value) + by)));
        });
        return made;
      };
      this.label = element("span", { className: "shown-step" });
      this.count = element("span", { className: "shown-frame" });
      for (const shown of [this.label, this.count]) shown.setAttribute("aria-hidden", "true"); // the slider announces it
      const steps = element("span", { className: "steps" }, step("‹", "Previous frame", -1), step("›", "Next frame", 1));
      return element("div", { className: "controls" }, this.button, steps, this.slider, this.label, this.count);
    }

    show(frame) {
      const { steps, unit, across, down } = this.spec;
      const [x, y] = [frame % across, Math.floor(frame / across)];
      this.frames.style.transform = `translate(${(-100 * x) / across}%, ${(-100 * y) / down}%)`;
      const text = `${unit} ${steps[frame]}`;
      this.window.setAttribute("aria-label", this.last ? `${this.name}, ${text}` : this.name);
      if (this.last) {
        this.slider.value = frame;
        this.slider.setAttribute("aria-valuetext", text);
        this.label.textContent = text;
        this.count.textContent = `frame ${frame + 1} of ${this.last + 1}`;
      }
      this.panels.forEach((panel) => panel.move(steps[frame]));
    }

    play() {
      this.button.textContent = "Pause";
      if (Number(this.slider.value) === this.last) this.show(0);
      const next = () => {
        const frame = Number(this.slider.value) + 1;
        this.show(frame);
        if (frame === this.last) this.stop();
      };
      this.timer = setInterval(next, Math.min(500, Math.max(80, 8000 / this.last)));
    }

    stop() {
      clearInterval(this.timer);
      this.timer = null;
      this.button.textContent = "Play";
    }
  }

  const swatch = ({ color, shape, width = 1.6, opacity = 1 }) => {
    const made = element("span", { className: `swatch ${shape}` });
    made.style.setProperty("--width", `${Math.min(6, Math.max(1.2, 1.5 * width))}px`);
    made.style.opacity = Math.max(0.3, opacity);
    const count = getComputedStyle(root).getPropertyValue("--series-count");
    made.style.color = color === null ? "var(--muted)" : `var(--series-${color % count})`;
    return made;
  };

  const switches = (legend, series, panels) => {
    const show = (name, on) => panels.forEach((panel) => panel.show(name, on));
    const buttons = new Map();
    let wanted = null;
    const point = (name) => {
      wanted = name;
      // Once per picture of the screen: a mouse passes over many.
      requestAnimationFrame(() => {
        if (wanted !== name || buttons.size < 2) return;
        panels.forEach((panel) => panel.point(name));
        buttons.forEach((one, of) => one.classList.toggle("pointed", of === name));
      });
    };
    const made = series.flatMap((entry) => {
      const { name, shape } = entry;
      if (shape === "kind") {
        legend.append(element("span", { className: "kind" }, swatch(entry), element("span", {}, ...formula(name)))); // cells are not switched
        return [];
      }
      const one = button("", true, (on) => {
        show(name, on);
        if (!on) point(null);
      });
      one.append(swatch(entry), element("span", {}, ...formula(name)));
      // A finger does not point: it switches.
      one.addEventListener("pointerenter", ({ pointerType }) => pointerType === "mouse" && point(name));
      one.addEventListener("focus", () => one.matches(":focus-visible") && point(name));
      for (const event of ["pointerleave", "blur"]) one.addEventListener(event, () => point(null));
      buttons.set(name, one);
      return [one];
    });
    for (const panel of panels) panel.pointing = point;
    legend.append(...made);
    if (made.length < 4) return;
    const press = (on) => made.filter((one) => (one.getAttribute("aria-pressed") === "true") !== on).forEach((one) => one.click());
    for (const [label, on] of [["all", true], ["none", false]]) {
      const every = element("button", { type: "button", className: "every" }, label);
      every.addEventListener("click", () => press(on));
      legend.append(every);
    }
  };

  globalThis.saddlescope = { colors, element, faint, Panel, Film, swatch, switches }; // for pages that draw more later

  const drawn = [];
  const films = [];
  for (const section of document.querySelectorAll("section.figure")) {
    const figure = JSON.parse(section.querySelector("script[type='application/json']").textContent);
    const panels = figure.panels.map((spec) => new Panel(spec, figure.title, figure.film));
    section.querySelector(".panels")?.append(...panels.map((panel) => panel.element));
    switches(section.querySelector(".legend"), figure.legend, panels);
    drawn.push(...panels);
    if (figure.film) films.push(new Film(section.querySelector(".film"), figure.film, figure.title, panels));
  }
  Promise.all(drawn.map((panel) => panel.draw())).then(() => {
    films.forEach((film) => film.show(0));
    root.dataset.drawn = drawn.length;
  });

  const paint = () => drawn.forEach((panel) => panel.paint());
  for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", paint);
  addEventListener("beforeprint", () => {
    root.classList.add("printing");
    paint();
    drawn.forEach((panel) => Plotly.relayout(panel.plot, { width: 640, height: 270 }));
  });
  addEventListener("afterprint", () => {
    root.classList.remove("printing");
    paint();
    drawn.forEach((panel) => Plotly.relayout(panel.plot, { autosize: true, width: null, height: null }));
  });

  // Arrows turn the page, unless something that uses them has the focus.
  addEventListener("keydown", ({ key, altKey, ctrlKey, metaKey, shiftKey, target }) => {
    const rel = { ArrowLeft: "prev", ArrowRight: "next" }[key];
    if (!rel || altKey || ctrlKey || metaKey || shiftKey || target !== document.body) return;
    document.querySelector(`a[rel=${rel}]`)?.click();
  });

  for (const command of document.querySelectorAll(".command")) {
    const copy = command.querySelector(".copy");
    if (!navigator.clipboard) continue;
    copy.hidden = false;
    copy.addEventListener("click", () =>
      navigator.clipboard.writeText(command.querySelector("code").textContent).then(() => (copy.textContent = "Copied")),
    );
  }
})();
