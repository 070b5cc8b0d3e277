// Draws the figures of a page from the JSON beside them: one legend of switches a figure, logarithmic axes on request,
// colours from the style sheet, so that plots follow the reader's light or dark system, and the light one on paper.
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

  const element = (tag, properties, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };

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
    constructor(spec, name) {
      this.spec = spec;
      const meta = spec.layout.meta;
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
      this.element.append(element("div", { className: "head" }, element("h3", {}, meta.title), axes), this.plot);
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
      return Plotly.newPlot(this.plot, data, layout, config).then(() => this.paint());
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
      restyle("fillcolor", indices("band"), faint);
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
      if (Object.keys(layout).length) Plotly.relayout(this.plot, layout);
    }
  }

  const switches = (legend, series, panels) => {
    const show = (name, on) => panels.forEach((panel) => panel.show(name, on));
    const made = series.map(({ name, color, shape }) => {
      const swatch = element("span", { className: `swatch ${shape}` });
      const count = getComputedStyle(root).getPropertyValue("--series-count");
      swatch.style.color = color === null ? "var(--muted)" : `var(--series-${color % count})`;
      const one = button("", true, (on) => show(name, on));
      one.append(swatch, name);
      return one;
    });
    legend.append(...made);
    if (made.length < 4) return;
    const press = (on) => made.filter((one) => (one.getAttribute("aria-pressed") === "true") !== on).forEach((one) => one.click());
    for (const [label, on] of [["all", true], ["none", false]]) {
      const every = element("button", { type: "button", className: "every" }, label);
      every.addEventListener("click", () => press(on));
      legend.append(every);
    }
  };

  const drawn = [];
  for (const section of document.querySelectorAll("section.figure")) {
    const figure = JSON.parse(section.querySelector("script[type='application/json']").textContent);
    const panels = figure.panels.map((spec) => new Panel(spec, figure.title));
    section.querySelector(".panels").append(...panels.map((panel) => panel.element));
    switches(section.querySelector(".legend"), figure.legend, panels);
    drawn.push(...panels);
  }
  Promise.all(drawn.map((panel) => panel.draw())).then(() => (root.dataset.drawn = drawn.length));

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

  for (const command of document.querySelectorAll(".command")) {
    const copy = command.querySelector(".copy");
    if (!navigator.clipboard) continue;
    copy.hidden = false;
    copy.addEventListener("click", () =>
      navigator.clipboard.writeText(command.querySelector("code").textContent).then(() => (copy.textContent = "Copied")),
    );
  }
})();
