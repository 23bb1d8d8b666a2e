// Charts: uPlot, with a legend that reads values out, alarms marked, and the same in words and as a table.

/* global uPlot */
import { add, el, fill } from "./dom.js";
import { short } from "./numbers.js";
import { colour, onTheme } from "./theme.js";

const COLOURS = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6"];
const HEIGHT = 190;
const LOG_FROM = 8; // A scale is logarithmic where its largest value is so many times its smallest.
const charts = new Set();
const seen = new ResizeObserver((entries) => {
  for (const entry of entries) entry.target.chart?.fit(entry.contentRect.width);
});

onTheme(() => charts.forEach((chart) => chart.draw()));

/** Forgets all charts; call before their section leaves the page. */
export function dropCharts() {
  charts.forEach((chart) => chart.destroy());
  charts.clear();
}

/**
 * A chart as a figure.
 * @param title, about: a heading, and one line under it.
 * @param xs: ascending numbers.
 * @param series: `[{label, values, colour, dash, points, faint, description}]`, values null where there are none.
 * @param bands: `[[upper, lower]]`, indices into `series`: the area between is shaded.
 * @param alarms: `[{step, since, level, rule, …}]`, drawn as lines. `lines`: values drawn across, such as 1.
 * @param scale: "linear", or "auto": logarithmic where values spread widely. `xlabel`: what xs count.
 */
export function figure({ title, about, xs, series, bands = [], alarms = [], lines = [], scale = "linear", xlabel = "step", stepped = false, range = null }) {
  const shown = series.filter((one) => one.values.some((value) => value !== null && value !== undefined));
  const moved = new Map(series.map((one, i) => [i, shown.indexOf(one)]));
  const kept = bands.map(([a, b]) => [moved.get(a), moved.get(b)]).filter(([a, b]) => a >= 0 && b >= 0);
  const legend = el("ul", { class: "legend", "aria-hidden": "true" });
  const plot = el("div", { class: "plot", role: "img", "aria-label": inWords(title, xs, shown, xlabel, alarms) });
  const numbers = el("details", { class: "numbers" }, el("summary", {}, "Numbers"));
  numbers.addEventListener("toggle", () => {
    if (numbers.open && numbers.childElementCount === 1) numbers.append(tableOf(title, xs, shown, xlabel));
  });
  const node = el(
    "figure",
    { class: "chart" },
    el("figcaption", {}, el("h3", {}, title), about && el("p", { class: "about" }, about)),
    legend,
    plot,
    numbers,
  );
  if (!shown.length) {
    fill(plot, el("p", { class: "nothing" }, "No values."));
    legend.remove();
    numbers.remove();
    return node;
  }
  const chart = new Chart({ plot, legend, xs, series: shown, bands: kept, alarms, lines, scale, stepped, range });
  plot.chart = chart;
  charts.add(chart);
  seen.observe(plot);
  return node;
}

class Chart {
  constructor(options) {
    Object.assign(this, options);
    this.off = new Set();
    this.width = 0;
    this.uplot = null;
  }

  fit(width) {
    if (width < 40 || Math.abs(width - this.width) < 1) return;
    this.width = width;
    if (this.uplot) this.uplot.setSize({ width, height: HEIGHT });
    else this.draw();
  }

  destroy() {
    seen.unobserve(this.plot);
    this.uplot?.destroy();
    this.uplot = null;
  }

  draw() {
    if (!this.width) return;
    this.uplot?.destroy();
    fill(this.plot);
    const ink = colour("--muted");
    const grid = { stroke: colour("--rule"), width: 1 };
    const log = this.isLog();
    const font = `11px ${colour("--sans")}`;
    this.colours = this.series.map((one, i) => colour(one.colour || COLOURS[i % COLOURS.length]));
    const axis = { stroke: ink, grid, ticks: { ...grid, size: 4 }, font };
    this.uplot = new uPlot(
      {
        width: this.width,
        height: HEIGHT,
        legend: { show: false },
        cursor: { sync: { key: "steps" }, y: false, points: { size: 6 }, drag: { x: true, y: false } },
        scales: {
          x: { time: false, range: (u, low, high) => (low === high ? [low - 1, high + 1] : [low, high]) },
          y: log ? { distr: 3, range: logRange } : { range: (u, low, high) => this.range || padded(low, high, this.lines) },
        },
        axes: [
          { ...axis, grid: { show: false }, size: 28, space: 60, values: (u, values) => values.map((v) => (Number.isInteger(v) ? String(v) : "")) },
          { ...axis, size: 52, space: 32, ...(log ? { splits: logSplits, filter: (u, splits) => splits } : {}), values: (u, values) => values.map((v) => (v === null ? "" : short(v))) },
        ],
        series: [{}, ...this.series.map((one, i) => this.lineOf(one, i))],
        bands: this.bands.map(([upper, lower]) => ({
          series: [upper + 1, lower + 1],
          fill: withAlpha(this.colours[upper], 0.16),
        })),
        hooks: {
          drawAxes: [(u) => this.drawMarks(u)],
          setCursor: [(u) => this.readOut(u.cursor.idx)],
        },
      },
      [this.xs, ...this.series.map((one) => (log ? one.values.map((v) => (v > 0 ? v : null)) : one.values))],
      this.plot,
    );
    this.makeLegend();
    this.readOut(null);
  }

  lineOf(one, i) {
    const few = one.values.filter((value) => value !== null && value !== undefined).length;
    return {
      stroke: this.colours[i],
      width: one.faint ? 1 : 1.6,
      dash: one.dash,
      alpha: one.faint ? 0.7 : 1,
      spanGaps: true,
      show: !this.off.has(i),
      paths: this.stepped ? uPlot.paths.stepped({ align: 1 }) : undefined,
      points: { show: one.points || few < 15, size: one.points ? 6 : 4, fill: colour("--page") },
    };
  }

  isLog() {
    if (this.scale !== "auto") return false;
    let low = Infinity;
    let high = -Infinity;
    for (const one of this.series) {
      for (const value of one.values) {
        if (value === null || value === undefined) continue;
        if (value < 0) return false;
        if (value > 0) low = Math.min(low, value);
        high = Math.max(high, value);
      }
    }
    return high / low > LOG_FROM;
  }

  drawMarks(u) {
    const { ctx } = u;
    const { left, top, width, height } = u.bbox;
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, top, width, height);
    ctx.clip();
    ctx.lineWidth = devicePixelRatio;
    for (const value of this.lines) {
      const y = u.valToPos(value, "y", true);
      ctx.strokeStyle = colour("--muted");
      ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
      ctx.beginPath();
      ctx.moveTo(left, y);
      ctx.lineTo(left + width, y);
      ctx.stroke();
    }
    ctx.setLineDash([]);
    for (const alarm of this.alarms) {
      const x = u.valToPos(alarm.step, "x", true);
      const stroke = colour(`--${alarm.level}`) || colour("--late");
      if (alarm.since !== null && alarm.since !== undefined && alarm.since < alarm.step) {
        const from = u.valToPos(alarm.since, "x", true);
        ctx.fillStyle = withAlpha(stroke, 0.08);
        ctx.fillRect(from, top, x - from, height);
      }
      ctx.strokeStyle = stroke;
      ctx.fillStyle = stroke;
      ctx.beginPath();
      ctx.moveTo(x, top);
      ctx.lineTo(x, top + height);
      ctx.stroke();
      const flag = 6 * devicePixelRatio;
      ctx.beginPath();
      ctx.moveTo(x, top);
      ctx.lineTo(x + flag, top + flag / 2);
      ctx.lineTo(x, top + flag);
      ctx.fill();
    }
    ctx.restore();
  }

  makeLegend() {
    this.values = [];
    fill(
      this.legend,
      this.series.map((one, i) => {
        const value = el("span", { class: "value" });
        this.values.push(value);
        const mark = el("span", { class: one.dash ? "swatch dashed" : "swatch" });
        mark.style.setProperty("--mark", this.colours[i]);
        const button = el("button", { type: "button", tabindex: "-1", title: one.description || one.label, class: this.off.has(i) ? "off" : "" }, mark, el("span", { dir: "auto" }, one.label), value);
        button.addEventListener("click", () => {
          this.off.has(i) ? this.off.delete(i) : this.off.add(i);
          button.classList.toggle("off");
          this.uplot.setSeries(i + 1, { show: !this.off.has(i) });
        });
        return el("li", {}, button);
      }),
    );
  }

  readOut(index) {
    this.series.forEach((one, i) => {
      const at = index === null || index === undefined ? lastOf(one.values) : index;
      this.values[i].textContent = at < 0 ? "" : short(one.values[at] ?? null);
    });
  }
}

function lastOf(values) {
  for (let i = values.length - 1; i >= 0; i--) if (values[i] !== null && values[i] !== undefined) return i;
  return -1;
}

function padded(low, high, lines) {
  if (low === null || high === null) return [0, 1];
  for (const line of lines) {
    low = Math.min(low, line);
    high = Math.max(high, line);
  }
  if (low === high) {
    const room = Math.abs(low) * 0.1 || 1;
    return [low === 0 ? 0 : low - room, high + room];
  }
  const room = (high - low) * 0.06;
  return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
}

function logRange(u, low, high) {
  if (low === null || high === null || !(low > 0)) return [0.1, 10];
  return low === high ? [low / 2, high * 2] : [low / 1.15, high * 1.15];
}

/** 1, 2 and 5 of every decade in sight; 1 alone where that would be many. */
function logSplits(u, axis, low, high) {
  const decades = Math.log10(high / low);
  const digits = decades < 2.2 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil(decades / 6));
  const splits = [];
  for (let k = Math.floor(Math.log10(low)); k <= Math.log10(high); k += digits.length > 1 ? 1 : every) {
    for (const digit of digits) {
      const value = Number(`${digit}e${k}`);
      if (value >= low && value <= high) splits.push(value);
    }
  }
  return splits;
}

export function withAlpha(hex, alpha) {
  const n = parseInt(hex.slice(1), 16);
  return `rgba(${n >> 16}, ${(n >> 8) & 255}, ${n & 255}, ${alpha})`;
}

/** What the chart says, for those who don't see it. */
function inWords(title, xs, series, xlabel, alarms) {
  const sentences = series.map((one) => {
    const known = one.values.map((value, i) => [value, xs[i]]).filter(([value]) => value !== null && value !== undefined);
    if (!known.length) return `${one.label}: no values`;
    const [first, last] = [known[0], known[known.length - 1]];
    let low = first;
    let high = first;
    for (const pair of known) {
      if (pair[0] < low[0]) low = pair;
      if (pair[0] > high[0]) high = pair;
    }
    return `${one.label} from ${short(first[0])} at ${xlabel} ${first[1]} to ${short(last[0])} at ${xlabel} ${last[1]}, lowest ${short(low[0])} at ${low[1]}, highest ${short(high[0])} at ${high[1]}`;
  });
  const raised = alarms.length ? ` Alarms at ${xlabel} ${alarms.map((alarm) => alarm.step).join(", ")}.` : "";
  return `Chart: ${title}. ${sentences.join(". ")}.${raised}`;
}

const ROWS = 500;

function tableOf(title, xs, series, xlabel) {
  const every = Math.ceil(xs.length / ROWS);
  const body = el("tbody");
  xs.forEach((x, i) => {
    if (i % every && i !== xs.length - 1) return;
    body.append(el("tr", {}, el("th", { scope: "row" }, x), series.map((one) => el("td", {}, short(one.values[i] ?? null, 4)))));
  });
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": `${title}: numbers` },
    el("table", { class: "figures" }, add(el("thead"), [el("tr", {}, el("th", { scope: "col" }, xlabel), series.map((one) => el("th", { scope: "col" }, one.label)))]), body),
  );
}
