"use strict";
// The script of the page: a price of two classes moves counts and curves; costs of several classes decide rows again.
const data = JSON.parse(document.getElementById("report-data").textContent);
const at = (id) => document.getElementById(id);

// -- numbers as text ------------------------------------------------------------------------------------------------
const grouped = (value, places) => value.toLocaleString("en-US", { maximumFractionDigits: places });
const count = (value) => grouped(value, Math.abs(value - Math.round(value)) < 1e-6 ? 0 : 1);
const digits = (value, places = 3) => {
  if (value === null || !Number.isFinite(value)) return "–";
  if (Math.abs(value) >= 10 ** places || value === 0) return grouped(value, 0);
  return String(Number(value.toPrecision(places)));
};
const percent = (share) => {
  if (share === null || !Number.isFinite(share)) return "–";
  const scaled = 100 * share;
  const isNearAnEnd = (scaled > 0 && scaled < 1) || (scaled > 99 && scaled < 100);
  return `${isNearAnEnd ? scaled.toFixed(2) : scaled < 10 ? Number(scaled.toPrecision(3)) : scaled.toFixed(0)}\u00a0%`;
};

// -- input and output -----------------------------------------------------------------------------------------------
function show(id, text, value) {
  at(id).textContent = text;
  if (value !== undefined) at(id).dataset.value = value;
}

/** The number in an input, or null with a message at the input where it is not allowed. */
function readNumber(input, isAllowed, allowed) {
  const value = Number(input.value);
  const isFine = input.value.trim() !== "" && Number.isFinite(value) && isAllowed(value);
  input.setCustomValidity(isFine ? "" : allowed);
  return isFine ? value : null;
}

async function copy(source) {
  try {
    await navigator.clipboard.writeText(source.value ?? source.textContent);
    show("copy-status", "Copied.");
  } catch {
    if (source.select) source.select();
    else window.getSelection().selectAllChildren(source);
    show("copy-status", document.execCommand("copy") ? "Copied." : "Selected: press Ctrl+C to copy.");
  }
}

/** Two classes, one of them positive: everything moves with the price. */
function pricePage() {
  // -- counts at a price --------------------------------------------------------------------------------------------
  const explorer = data.explorer;
  const { grid, score, tp, fp } = explorer;
  const total = explorer.n_pos + explorer.n_neg;
  const thresholdOf = (price) => 1 / (1 + price);

  /** How many of the points are above the threshold of a price; scores fall. */
  function above(price) {
    const threshold = thresholdOf(price);
    let low = 0;
    let high = score.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (score[middle] > threshold) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  function countsAt(price) {
    const k = above(price);
    const caught = k ? tp[k - 1] : 0;
    const alarmed = k ? fp[k - 1] : 0;
    const square = k ? (explorer.square ? explorer.square[k - 1] : caught + alarmed) : 0;
    // Where points were left out, another score between the last one kept and the threshold would be missing.
    const isExact = !explorer.below || (k ? explorer.below[k - 1] <= thresholdOf(price) : score[0] <= thresholdOf(price));
    return { tp: caught, fp: alarmed, fn: Math.max(explorer.n_pos - caught, 0), square, isExact };
  }

  const ratio = (part, whole) => (whole > 0 ? part / whole : NaN);

  /** The place of a price on the slider: the nearest price of the grid. */
  function placeOf(price) {
    const wanted = Math.log(price);
    let best = 0;
    grid.forEach((one, i) => {
      if (Math.abs(Math.log(one) - wanted) < Math.abs(Math.log(grid[best]) - wanted)) best = i;
    });
    return best;
  }

  /** What a catch costs around a price, over the narrowest window of the grid with a few catches in it. */
  function marginal(price) {
    const middle = placeOf(price);
    let step;
    for (const width of explorer.windows) {
      const low = grid[Math.max(middle - width, 0)];
      const high = grid[Math.min(middle + width, grid.length - 1)];
      const start = countsAt(low);
      const end = countsAt(high);
      step = { low, high, catches: start.fn - end.fn, alarms: end.fp - start.fp, square: end.square - start.square };
      if (step.catches >= explorer.wanted_catches) break;
    }
    step.expense = ratio(step.alarms, step.catches);
    step.sd = outside(step);
    return step;
  }

  /** By how many standard deviations the catches of a step lie outside of what its bracket allows. */
  function outside(step) {
    const size = step.catches + step.alarms;
    if (size <= 0 || step.square <= 0) return NaN;
    const most = thresholdOf(step.low);
    const least = thresholdOf(step.high);
    const share = step.catches > most * size ? most : step.catches < least * size ? least : null;
    if (share === null) return 0;
    const n = size ** 2 / (step.square * explorer.effect);
    if (share * (1 - share) * n < explorer.least_variance) return NaN;
    const z = deviation((n * step.catches) / size, n, share);
    return z > 0 || deviation(0, n, share) < -explorer.most_deviations ? z : NaN;
  }

  /** As count_deviation of crcen.theory.limits: a binomial count whose log-odds have the model uncertainty. */
  function deviation(count, n, share) {
    const sign = count < n * share ? -1 : 1;
    count -= sign * Math.min(0.5, Math.abs(count - n * share));
    const center = Math.log(share / (1 - share));
    const weight = (n * share * (1 - share)) / Math.max(explorer.noise - 1, 1e-12);
    const all = count > 0 && count < n ? Math.log(count / (n - count)) - center : sign * 100;
    let [low, high] = [Math.min(0, all), Math.max(0, all)];
    let error, q;
    for (let i = 0; i < 60; i++) {
      error = 0.5 * (low + high);
      q = 1 / (1 + Math.exp(-center - error));
      if (count - n * q - weight * error > 0) low = error;
      else high = error;
    }
    const part = (k, m) => (k > 0 ? k * Math.log(k / m) : 0);
    const deviance = 2 * (part(count, n * q) + part(n - count, n * (1 - q)));
    return sign * Math.sqrt(Math.max(0, deviance + weight * error ** 2));
  }

  // -- drawing ------------------------------------------------------------------------------------------------------
  const SVG = "http://www.w3.org/2000/svg";
  function make(name, attributes, parent, text) {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    if (parent) parent.appendChild(element);
    return element;
  }

  const logit = (p) => Math.log(p / (1 - p));
  const SCALES = { linear: (v) => v, log: Math.log, logit };
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

  function scale(kind, domain, from, to) {
    const turn = SCALES[kind];
    const [low, high] = domain.map(turn);
    return (value) => from + ((turn(clamp(value, domain[0], domain[1])) - low) / (high - low)) * (to - from);
  }

  const powers = (low, high) => {
    const found = [];
    for (let e = Math.ceil(Math.log10(low) - 1e-9); e <= Math.floor(Math.log10(high) + 1e-9); e += 1) found.push(e);
    const every = Math.ceil(found.length / 7);
    return found.filter((e) => (e - found[0]) % every === 0).map((e) => 10 ** e);
  };
  /** Zero and a few round numbers up to a top. */
  const rounds = (top, wanted = 4) => {
    const rough = top / wanted;
    const unit = 10 ** Math.floor(Math.log10(rough));
    const step = unit * [1, 2, 2.5, 5, 10].find((one) => one * unit >= rough * 0.999);
    return Array.from({ length: Math.floor(top / step + 1e-9) + 1 }, (_, i) => Number((i * step).toPrecision(6)));
  };
  const shares = [0, 0.2, 0.4, 0.6, 0.8, 1];
  const CHANCES = [1e-6, 1e-5, 1e-4, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999];
  const FINER = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99];
  const chanceTicks = (low, high) => {
    const within = (list) => list.filter((p) => p >= low && p <= high);
    return within(CHANCES).length < 5 ? within(FINER) : within(CHANCES);
  };
  const chanceText = (p) => `${Number((100 * p).toPrecision(6))}\u00a0%`;
  const priceText = (price) => digits(price);
  const lamText = (price) => {
    const lam = price / (1 + price);
    return lam > 0.5 ? String(Number((1 - 10 ** Math.floor(Math.log10(1 - lam)) * Math.round((1 - lam) / 10 ** Math.floor(Math.log10(1 - lam)))).toPrecision(8))) : String(Number(lam.toPrecision(1)));
  };

  const charts = [];

  /** A chart that is drawn to the width it has, and again when that changes; `moved` puts its marks at a price. */
  function chart(id, spec) {
    const place = at(id);
    const state = { place, spec, drawn: 0, marks: null };
    if (spec.key) place.before(keyOf(spec.key));
    charts.push(state);
    if (window.ResizeObserver) new ResizeObserver(() => draw(state)).observe(place);
    draw(state);
  }

  function draw(state) {
    const width = Math.round(state.place.clientWidth);
    if (!width || width === state.drawn) return;
    state.drawn = width;
    const { spec } = state;
    const height = spec.height || Math.round(clamp(width * 0.62, 210, 320));
    const widest = Math.max(...spec.y.ticks.map((tick) => spec.y.text(tick).length));
    const left = Math.round(widest * 7) + (spec.y.name ? 30 : 12);
    const box = { left, right: width - 12, top: 10, bottom: height - 42 };
    state.place.replaceChildren();
    const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": spec.label }, state.place);
    const x = scale(spec.x.kind, spec.x.domain, box.left, box.right);
    const y = scale(spec.y.kind, spec.y.domain, box.bottom, box.top);
    axes(svg, spec, box, x, y);
    spec.paint(svg, x, y, box);
    state.marks = make("g", {}, svg);
    state.x = x;
    state.y = y;
    state.box = box;
    if (current) mark(state);
  }

  function axes(svg, spec, box, x, y) {
    let free = -Infinity; // labels that would touch the one before are left out
    for (const tick of spec.x.ticks) {
      const text = spec.x.text(tick);
      make("line", { class: "grid-line", x1: x(tick), x2: x(tick), y1: box.top, y2: box.bottom }, svg);
      if (x(tick) - text.length * 3.6 < free) continue;
      make("text", { x: x(tick), y: box.bottom + 17, "text-anchor": "middle" }, svg, text);
      free = x(tick) + text.length * 3.6 + 6;
    }
    free = Infinity;
    for (const tick of spec.y.ticks) {
      make("line", { class: "grid-line", x1: box.left, x2: box.right, y1: y(tick), y2: y(tick) }, svg);
      if (y(tick) > free) continue;
      make("text", { x: box.left - 7, y: y(tick) + 4, "text-anchor": "end" }, svg, spec.y.text(tick));
      free = y(tick) - 14;
    }
    make("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }, svg);
    make("text", { x: (box.left + box.right) / 2, y: box.bottom + 36, "text-anchor": "middle" }, svg, spec.x.name);
    if (spec.y.name) {
      const middle = (box.top + box.bottom) / 2;
      make("text", { transform: `translate(12 ${middle}) rotate(-90)`, "text-anchor": "middle" }, svg, spec.y.name);
    }
  }

  const pathOf = (points) => points.map(([a, b], i) => `${i ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join("");
  const line = (svg, points, style) => make("path", { class: `line ${style}`, d: pathOf(points) }, svg);
  const square = (svg, a, b, style, r = 4.5) => make("rect", { class: `dot ${style}`, x: a - r, y: b - r, width: 2 * r, height: 2 * r }, svg);
  const circle = (svg, a, b, style, r = 5) => make("circle", { class: `dot ${style}`, cx: a, cy: b, r }, svg);

  function keyOf(entries) {
    const list = document.createElement("ul");
    list.className = "key";
    for (const [kind, style, text] of entries) {
      const item = document.createElement("li");
      const svg = make("svg", { viewBox: "0 0 26 12", "aria-hidden": "true" }, item);
      if (kind === "line") make("path", { class: `line ${style}`, d: "M1 6H25" }, svg);
      else if (kind === "area") make("rect", { class: `area ${style}`, x: 2, y: 1, width: 22, height: 10 }, svg);
      else (kind === "square" ? square : circle)(svg, 13, 6, style);
      item.append(text);
      list.append(item);
    }
    const frame = document.createElement("div");
    frame.className = "chart keyed";
    frame.append(list);
    return frame;
  }

  function mark(state) {
    state.marks.replaceChildren();
    state.spec.moved?.(state.marks, state.x, state.y, state.box, current);
  }

  const ring = (parent, a, b) => make("circle", { class: "mark", cx: a, cy: b, r: 6.5 }, parent);
  const upright = (parent, a, box) => make("line", { class: "mark-line", x1: a, x2: a, y1: box.top, y2: box.bottom }, parent);

  // -- the curves ---------------------------------------------------------------------------------------------------
  const share = { kind: "linear", domain: [0, 1], ticks: shares, text: (v) => String(v) };
  const steps = tp.map((caught, i) => ({ tp: caught, fp: fp[i] }));

  const chanceAxis = (name, values) => {
    const inside = values.filter((v) => v > 0 && v < 1);
    const low = Math.min(...inside, 0.4);
    const high = Math.max(...inside, 0.6);
    const domain = [low * 0.7, 1 - (1 - high) * 0.7];
    return { kind: "logit", domain, ticks: chanceTicks(...domain), text: chanceText, name };
  };

  function precisionRecall() {
    const base = explorer.n_pos / total;
    chart("chart-pr", {
      label: "Precision against recall", x: { ...share, name: "recall" }, y: { ...share, name: "precision" },
      paint(svg, x, y) {
        line(svg, [[x(0), y(base)], [x(1), y(base)]], "quiet dashed");
        line(svg, steps.filter((s) => s.tp > 0).map((s) => [x(s.tp / explorer.n_pos), y(s.tp / (s.tp + s.fp))]), "neg");
      },
      moved: (g, x, y, box, now) => now.tp + now.fp > 0 && ring(g, x(now.recall), y(now.precision)),
    });
  }

  function roc() {
    chart("chart-roc", {
      label: "ROC curve", x: { ...share, name: "false alarms among the negatives" }, y: { ...share, name: "recall" },
      paint(svg, x, y) {
        line(svg, [[x(0), y(0)], [x(1), y(1)]], "quiet dashed");
        line(svg, [[x(0), y(0)], ...steps.map((s) => [x(s.fp / explorer.n_neg), y(s.tp / explorer.n_pos)])], "neg");
      },
      moved: (g, x, y, box, now) => ring(g, x(now.fp / explorer.n_neg), y(now.recall)),
    });
  }

  function reliability() {
    const { groups } = data.reliability[0];
    const hasBefore = groups.every((g) => g.mean_q !== null);
    const stated = groups.flatMap((g) => (hasBefore ? [g.mean_p, g.mean_q] : [g.mean_p]));
    const axis = chanceAxis("probability stated", [...stated, ...groups.map((g) => g.observed)]);
    const key = [["circle", "neg", hasBefore ? "after correction" : "as stated"]];
    if (hasBefore) key.unshift(["square", "pos", "before correction (weighted)"]);
    chart("chart-reliability", {
      label: "Observed share of positives against stated probability", key,
      x: axis, y: { ...axis, name: "share observed" },
      paint(svg, x, y, box) {
        line(svg, [[box.left, box.bottom], [box.right, box.top]], "quiet dashed");
        for (const g of groups) {
          if (hasBefore) square(svg, x(g.mean_q), y(g.observed), "pos");
          make("line", { class: "whisker neg", x1: x(g.mean_p), x2: x(g.mean_p), y1: y(g.low), y2: y(g.high) }, svg);
          circle(svg, x(g.mean_p), y(g.observed), "neg");
        }
      },
    });
  }

  function histogram() {
    const { edges, pos, neg } = data.histogram;
    const top = Math.max(...pos, ...neg) * 1.05;
    const ends = [edges[0], edges[edges.length - 1]];
    const x = { kind: "logit", domain: ends, ticks: chanceTicks(...ends), text: chanceText, name: "probability given" };
    const y = { kind: "linear", domain: [0, top], ticks: rounds(top), text: (v) => chanceText(v), name: "share of the class" };
    chart("chart-histogram", {
      label: "Share of each class by probability", x, y,
      key: [["area", "pos", data.rows.pos_label], ["area", "neg", data.rows.neg_label]],
      paint(svg, sx, sy, box) {
        for (const [values, style] of [[neg, "neg"], [pos, "pos"]]) {
          const outline = [[sx(edges[0]), box.bottom]];
          values.forEach((v, i) => outline.push([sx(edges[i]), sy(v)], [sx(edges[i + 1]), sy(v)]));
          outline.push([sx(ends[1]), box.bottom]);
          make("path", { class: `area ${style}`, d: pathOf(outline) }, svg);
        }
      },
      moved(g, sx, sy, box, now) {
        if (now.threshold >= ends[0] && now.threshold <= ends[1]) upright(g, sx(now.threshold), box);
      },
    });
  }

  function keyEquation() {
    const names = Object.keys(data.key_equations);
    const values = names.map((name) => data.key_equations[name]).map((e) => (e.lhs === null ? null : e.lhs / e.rhs));
    const far = Math.max(2, ...values.filter((v) => v > 0).map((v) => Math.max(v, 1 / v) * 1.15));
    const ticks = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100].filter((v) => v >= 1 / far && v <= far);
    const rows = { kind: "linear", domain: [-0.6, names.length - 0.4], ticks: names.map((_, i) => i) };
    chart("chart-equation", {
      label: "Left side of the key equation divided by the right side", height: 66 + 34 * names.length,
      x: { kind: "log", domain: [1 / far, far], ticks, text: (v) => `${v}`, name: "left side ÷ right side" },
      y: { ...rows, text: (i) => names[names.length - 1 - i].replaceAll("_", " ") },
      paint(svg, x, y, box) {
        make("line", { class: "line quiet dashed", x1: x(1), x2: x(1), y1: box.top, y2: box.bottom }, svg);
        values.forEach((v, i) => v > 0 && circle(svg, x(v), y(names.length - 1 - i), "neg", 6));
      },
    });
  }

  function weightPath() {
    const path = data.path;
    const ends = [path.price[0], path.price[path.price.length - 1]];
    chart("chart-path", {
      label: "Class means against the weight, with the law",
      key: [["line", "pos", `mean of ${data.rows.pos_label}`], ["line", "neg", `mean of ${data.rows.neg_label}`], ["line", "quiet dotted", "by the law"]],
      x: { kind: "log", domain: ends, ticks: powers(...ends), text: lamText, name: "weight λ" }, y: { ...share, name: "mean probability" },
      paint(svg, x, y) {
        for (const name of ["pos", "neg"]) {
          line(svg, path.price.map((c, i) => [x(c), y(path[`mean_${name}`][i])]), name);
          line(svg, path.price.map((c, i) => [x(c), y(path[`law_${name}`][i])]), "quiet dotted");
        }
      },
      moved: (g, x, y, box, now) => now.price >= ends[0] && now.price <= ends[1] && upright(g, x(now.price), box),
    });
  }

  function netBenefit() {
    const { price, model, everybody } = data.decisions.net_benefit;
    const top = Math.max(...model, explorer.n_pos / total) * 1.05;
    const low = Math.max(Math.min(...model, 0), -0.4 * top) - 0.08 * top;
    const ends = [price[0], price[price.length - 1]];
    const shown = price.map((c, i) => [c, everybody[i]]).filter((point) => point[1] >= low);
    chart("chart-benefit", {
      label: "Net benefit against price",
      key: [["line", "neg", "model"], ["line", "quiet dashed", "alarm on every row"], ["line", "quiet dotted", "no alarm"]],
      x: { kind: "log", domain: ends, ticks: powers(...ends), text: priceText, name: "price" },
      y: { kind: "linear", domain: [low, top], ticks: rounds(top), text: (v) => digits(v), name: "catches per row" },
      paint(svg, x, y) {
        line(svg, [[x(ends[0]), y(0)], [x(ends[1]), y(0)]], "quiet dotted");
        if (shown.length > 1) line(svg, shown.map(([c, v]) => [x(c), y(v)]), "quiet dashed");
        line(svg, price.map((c, i) => [x(c), y(model[i])]), "neg");
      },
      moved(g, x, y, box, now) {
        const benefit = (now.tp - now.fp / now.price) / total;
        if (now.price >= ends[0] && now.price <= ends[1] && benefit >= low) ring(g, x(now.price), y(benefit));
      },
    });
  }

  function gains() {
    const { rows, found } = data.decisions.gains;
    chart("chart-gains", {
      label: "Share of positives found against share of rows with an alarm",
      x: { ...share, name: "share of rows, riskiest first" }, y: { ...share, name: "share of positives found" },
      paint(svg, x, y) {
        line(svg, [[x(0), y(0)], [x(1), y(1)]], "quiet dashed");
        line(svg, rows.map((r, i) => [x(r), y(found[i])]), "neg");
      },
      moved: (g, x, y, box, now) => ring(g, x((now.tp + now.fp) / total), y(now.recall)),
    });
  }

  function brierCurve() {
    const { share: at_, model, lowest, trivial } = data.decisions.brier;
    const top = Math.max(...model, ...trivial) * 1.05 || 1;
    chart("chart-brier", {
      label: "Brier curve",
      key: [["line", "neg", "as stated"], ["line", "neg dotted", "best threshold"], ["line", "quiet dashed", "no model"]],
      x: { ...share, name: "threshold" }, y: { kind: "linear", domain: [0, top], ticks: rounds(top), text: (v) => digits(v), name: "loss per row" },
      paint(svg, x, y) {
        for (const [values, style] of [[trivial, "quiet dashed"], [lowest, "neg dotted"], [model, "neg"]]) {
          line(svg, at_.map((c, i) => [x(c), y(values[i])]), style);
        }
      },
      moved: (g, x, y, box, now) => upright(g, x(now.threshold), box),
    });
  }

  function costLines() {
    const { share: at_, model, trivial } = data.decisions.cost;
    chart("chart-costcurve", {
      label: "Cost curve", x: { ...share, name: "probability cost of a positive" },
      y: { kind: "linear", domain: [0, 0.55], ticks: [0, 0.1, 0.2, 0.3, 0.4, 0.5], text: (v) => String(v), name: "normalised cost" },
      paint(svg, x, y) {
        line(svg, at_.map((c, i) => [x(c), y(trivial[i])]), "quiet dashed");
        line(svg, at_.map((c, i) => [x(c), y(model[i])]), "neg");
      },
      moved(g, x, y, box, now) {
        const all = explorer.n_pos * now.price;
        upright(g, x(all / (all + explorer.n_neg)), box);
      },
    });
  }

  function modelsBeside() {
    const styles = ["neg", "pos", "neg dashed", "pos dashed", "neg dotted", "pos dotted", "quiet"];
    const models = data.models.map((one, i) => ({ ...one, style: styles[i % styles.length] }));
    const { price } = models[0].net_benefit;
    const ends = [price[0], price[price.length - 1]];
    const top = Math.max(...models.flatMap((one) => one.net_benefit.model), explorer.n_pos / total) * 1.05;
    const low = Math.max(Math.min(0, ...models.flatMap((one) => one.net_benefit.model)), -0.4 * top) - 0.05 * top;
    chart("chart-models", {
      label: "Net benefit of every model against price", key: models.map((one) => ["line", one.style, one.name]),
      x: { kind: "log", domain: ends, ticks: powers(...ends), text: priceText, name: "price" },
      y: { kind: "linear", domain: [low, top], ticks: rounds(top), text: (v) => digits(v), name: "catches per row" },
      paint: (svg, x, y) => models.forEach((one) => line(svg, price.map((c, i) => [x(c), y(one.net_benefit.model[i])]), one.style)),
      moved: (g, x, y, box, now) => now.price >= ends[0] && now.price <= ends[1] && upright(g, x(now.price), box),
    });
  }

  // -- goals: the price that meets one on these rows ---------------------------------------------------------------
  /** The cut that meets a goal, or -1: the first with the recall, the last with the precision or the alarms. */
  function cutFor(kind, value) {
    if (kind === "recall") return tp.findIndex((caught) => caught >= value * explorer.n_pos * (1 - 1e-12));
    const isMet = (i) => (kind === "precision" ? tp[i] / (tp[i] + fp[i]) >= value : tp[i] + fp[i] <= value * (1 + 1e-12));
    for (let i = tp.length - 1; i >= 0; i -= 1) if (isMet(i)) return i;
    return -1;
  }

  /** A short price whose threshold lies between the last row with an alarm and the next. */
  function priceOfCut(k) {
    const inside = 1 / score[k] - 1;
    const next = explorer.below ? explorer.below[k] : k + 1 < score.length ? score[k + 1] : 0;
    const outside = next > 0 ? 1 / next - 1 : inside * 4 + 4;
    const middle = inside > 0 ? Math.sqrt(inside * outside) : outside / 2;
    for (let places = 3; places < 16; places += 1) {
      const short = Number(middle.toPrecision(places));
      if (short > inside && short <= outside) return short;
    }
    return middle;
  }

  const GOALS = {
    capacity: { says: (v) => `At most ${count(v)} alarms`, isFine: (v) => v >= 1, allowed: "a number of at least 1" },
    recall: { says: (v) => `Recall of at least ${v}`, isFine: (v) => v > 0 && v <= 1, allowed: "a share above 0 and at most 1" },
    precision: { says: (v) => `Precision of at least ${v}`, isFine: (v) => v > 0 && v < 1, allowed: "a share between 0 and 1" },
  };

  function readGoal(kind) {
    const input = at(`goal-${kind}`);
    const { says, isFine, allowed } = GOALS[kind];
    const value = Number(input.value);
    const isGiven = input.value.trim() !== "";
    input.setCustomValidity(!isGiven || (Number.isFinite(value) && isFine(value)) ? "" : allowed);
    if (!isGiven) return;
    for (const other of Object.keys(GOALS)) if (other !== kind) at(`goal-${other}`).value = "";
    if (!input.checkValidity() && input.validationMessage === allowed) { show("goal-help", `That must be ${allowed}.`); return; }
    const cut = cutFor(kind, value);
    if (cut < 0 || score[cut] <= 0) { show("goal-help", `${says(value)}: no price has that on these rows.`); return; }
    const price = priceOfCut(cut);
    moveTo(price);
    show("goal-help", `${says(value)}: a price of ${price}, with ${count(tp[cut])} of ${count(explorer.n_pos)} found and ${count(tp[cut] + fp[cut])} alarms.`);
  }

  // -- the cost curve follows the costs that are typed --------------------------------------------------------------
  const costs = { miss: explorer.start, alarm: 1 };
  const costAt = (counts) => counts.fn * costs.miss + counts.fp * costs.alarm;

  function costCurve() {
    charts.splice(0, charts.length, ...charts.filter((c) => c.place.id !== "chart-cost"));
    const values = grid.map((price) => (1000 * costAt(countsAt(price))) / total);
    const silent = (1000 * explorer.n_pos * costs.miss) / total;
    const top = Math.min(Math.max(...values), 2 * silent) * 1.05 || 1;
    const state = {
      place: at("chart-cost"), drawn: 0, marks: null,
      spec: {
        label: "Expected cost per 1,000 rows against price", height: 210,
        x: { kind: "log", domain: [grid[0], grid[grid.length - 1]], ticks: powers(grid[0], grid[grid.length - 1]), text: priceText, name: "price" },
        y: { kind: "linear", domain: [0, top], ticks: rounds(top, 3), text: (v) => digits(v), name: "cost per 1,000" },
        paint: (svg, x, y) => line(svg, grid.map((price, i) => [x(price), y(values[i])]), "neg"),
        moved: (g, x, y, box, now) => ring(g, x(now.price), y((1000 * costAt(now)) / total)),
      },
    };
    charts.push(state);
    draw(state);
    return state;
  }

  // -- moving the price ---------------------------------------------------------------------------------------------
  let current = null;
  let announcement = 0;

  function moveTo(price, source) {
    const counts = countsAt(price);
    const alarms = counts.tp + counts.fp;
    const recall = ratio(counts.tp, explorer.n_pos);
    const precision = ratio(counts.tp, alarms);
    current = { ...counts, price, threshold: thresholdOf(price), recall, precision };
    if (source !== "number") at("price-number").value = price;
    at("price").value = placeOf(price);
    at("price").setAttribute("aria-valuetext", `${price} false alarms per catch`);
    show("threshold-text", `Alarm if the probability is above ${percent(current.threshold)}.`);
    show("out-recall", percent(recall), recall);
    show("out-tp", `${count(counts.tp)} of ${count(explorer.n_pos)}`, counts.tp);
    show("out-precision", percent(precision), precision);
    show("out-average", alarms ? `${digits(ratio(counts.fp, counts.tp))} false alarms per catch on average` : "no alarm");
    show("out-fn", count(counts.fn), counts.fn);
    show("out-fp", count(counts.fp), counts.fp);
    show("out-alarms", digits((1000 * alarms) / total), (1000 * alarms) / total);
    showBar("bar-positives", counts.tp, counts.fn);
    showBar("bar-alarms", counts.tp, counts.fp);
    const lift = ratio(recall, alarms / total);
    show("lift-text", alarms ? `At this price the alarms hold ${digits(lift)} times as many positives as random rows (lift).` : "", lift);
    showMarginal(price);
    showCost();
    showCommand(`${data.command} ${price} ${data.command_end ?? "--out scored.csv"}`);
    show("copy-status", "");
    show("exactness", counts.isExact ? "" : "These rows have more distinct probabilities than the page holds. At this price the counts are those of the nearest lower stored price; prices of two digits and those of the slider are exact.");
    charts.forEach((state) => state.marks && mark(state));
    clearTimeout(announcement);
    announcement = setTimeout(() => show("announcer", `At ${price} false alarms per catch: ${count(counts.tp)} of ${count(explorer.n_pos)} found, ${count(counts.fp)} false alarms.`), 600);
  }

  /** The command, in parts that are not broken over lines. */
  function showCommand(text) {
    const parts = text.split(/ (?=--)/).map((part, i) => {
      const piece = document.createElement("span");
      if (i) piece.className = "whole";
      piece.textContent = part;
      return i ? [" ", piece] : [piece];
    });
    at("command").replaceChildren(...parts.flat());
  }

  /** A bar of two parts as long as its size among all positives, or all alarms the page knows of. */
  function showBar(id, first, second) {
    const whole = first + second;
    const length = id === "bar-alarms" ? whole / Math.max(explorer.n_pos, whole) : 1;
    const svg = at(id);
    svg.replaceChildren();
    if (!whole) return;
    const cut = (100 * length * first) / whole;
    make("rect", { class: "hit", x: 0, y: 0, width: cut, height: 10 }, svg);
    make("rect", { class: "fail", x: cut, y: 0, width: Math.max(100 * length - cut, 0), height: 10 }, svg);
  }

  function showMarginal(price) {
    const step = marginal(price);
    const isOff = Math.abs(step.sd) > explorer.most_deviations;
    at("marginal").classList.toggle("outside", isOff);
    show("out-expense", step.catches > 0 ? `${digits(step.expense, 4)} false alarms for one more catch` : "undefined here", step.expense);
    const bracket = at("out-bracket");
    Object.assign(bracket.dataset, { low: step.low, high: step.high, catches: step.catches, sd: step.sd });
    const where = `Between the prices ${digits(step.low)} and ${digits(step.high)}`;
    const flips = `${count(step.catches)} more found for ${count(step.alarms)} more false alarms`;
    const isInside = step.expense >= step.low && step.expense <= step.high;
    let verdict = "inside its bracket";
    if (!(step.catches > 0)) verdict = step.alarms > 0 ? "no catch gained" : "no decision changes";
    else if (isOff) verdict = "outside its bracket, beyond chance";
    else if (Number.isNaN(step.sd)) verdict = "outside its bracket, on too few rows to tell";
    else if (!isInside) verdict = "outside its bracket, within chance";
    const strong = document.createElement("span");
    strong.className = isInside && step.catches > 0 ? "verdict inside" : "verdict";
    strong.textContent = verdict;
    bracket.replaceChildren(strong, ` · ${where}: ${flips}; right probabilities give an expense of ${digits(step.low)} to ${digits(step.high)}.`);
  }

  function showCost() {
    const cost = costAt(current);
    show("out-cost", digits((1000 * cost) / total, 4), (1000 * cost) / total);
    show("out-cost-here", `${digits(cost, 4)} on these rows`, cost);
    const wanted = rounded(costs.miss / costs.alarm);
    const help = at("cost-help");
    help.textContent = "";
    if (wanted === rounded(current.price)) {
      help.textContent = "The price is that of these costs: miss ÷ false alarm.";
      return;
    }
    help.append(`These costs mean a price of ${wanted}. `);
    const button = document.createElement("button");
    button.type = "button";
    button.id = "use-costs";
    button.textContent = "Go there";
    button.addEventListener("click", () => moveTo(wanted));
    help.append(button);
  }

  const isPrice = (value) => value > 0;
  const rounded = (price) => Number(price.toPrecision(3));

  function readCosts() {
    const miss = readNumber(at("cost-miss"), isPrice, "a number above 0");
    const alarm = readNumber(at("cost-alarm"), isPrice, "a number above 0");
    if (miss === null || alarm === null) {
      at("cost-help").textContent = "Both costs must be numbers above 0.";
      return;
    }
    Object.assign(costs, { miss, alarm });
    costCurve();
    moveTo(rounded(miss / alarm));
  }

  function connect() {
    at("price").max = grid.length - 1;
    at("start-price").textContent = explorer.start;
    at("cost-miss").value = explorer.start;
    for (const price of powers(grid[0], grid[grid.length - 1])) {
      const tick = document.createElement("span");
      tick.textContent = digits(price);
      at("price-ticks").append(tick);
    }
    at("price").addEventListener("input", () => moveTo(grid[Number(at("price").value)]));
    at("price-number").addEventListener("input", () => {
      const price = readNumber(at("price-number"), isPrice, "a number above 0");
      if (price !== null) moveTo(price, "number");
    });
    at("controls").addEventListener("submit", (event) => event.preventDefault());
    at("cost-miss").addEventListener("input", readCosts);
    at("cost-alarm").addEventListener("input", readCosts);
    for (const kind of Object.keys(GOALS)) at(`goal-${kind}`).addEventListener("input", () => readGoal(kind));
    at("reset").addEventListener("click", () => moveTo(explorer.start));
    at("copy").addEventListener("click", () => copy(at("command")));
    window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
  }

  connect();
  for (const paint of [precisionRecall, roc, reliability, histogram, keyEquation, weightPath, netBenefit, gains, brierCurve, costLines]) paint();
  if (data.models.length) modelsBeside();
  const costChart = costCurve();
  if (window.ResizeObserver) new ResizeObserver(() => charts.forEach(draw)).observe(costChart.place);
  moveTo(explorer.start);
}

/** Several classes: typed costs decide the embedded rows again; a class opens its own price page. */
function costPage() {
  const { y, p, weights, labels, decisions: actions, costs: start } = data.costs;
  const nRows = y.length;
  const weightOf = (i) => (weights ? weights[i] : 1);
  const total = y.reduce((sum, _, i) => sum + weightOf(i), 0);

  // -- decisions ----------------------------------------------------------------------------------------------------
  /** The cheapest action of every row, the first of equals: argmin over a of the sum over k of p_k C_ka. */
  function decide(costs) {
    const nActions = costs[0].length;
    const chosen = new Array(nRows);
    for (let i = 0; i < nRows; i += 1) {
      let best = 0;
      let least = Infinity;
      for (let a = 0; a < nActions; a += 1) {
        let expected = 0;
        for (let k = 0; k < labels.length; k += 1) expected += p[k][i] * costs[k][a];
        if (expected < least) {
          least = expected;
          best = a;
        }
      }
      chosen[i] = best;
    }
    return chosen;
  }

  function judge(costs, chosen) {
    const nActions = costs[0].length;
    const table = labels.map(() => new Array(nActions).fill(0));
    const habits = new Array(nActions).fill(0);
    let cost = 0;
    for (let i = 0; i < nRows; i += 1) {
      const weight = weightOf(i);
      table[y[i]][chosen[i]] += weight;
      cost += weight * costs[y[i]][chosen[i]];
      for (let a = 0; a < nActions; a += 1) habits[a] += weight * costs[y[i]][a];
    }
    const habit = habits.indexOf(Math.min(...habits));
    return { table, cost: cost / total, habit, habitCost: habits[habit] / total };
  }

  // -- the matrix that is typed -------------------------------------------------------------------------------------
  const cell = (i, j) => at(`cost-${i}-${j}`);
  const names = () => (at("look-cost").value.trim() === "" ? actions : [...actions, lookName()]);
  const lookName = () => (actions.includes("review") ? "review by a person" : "review");

  /** The costs as they stand there, or null where a cell holds no cost. */
  function readCosts() {
    const isCost = (value) => value >= 0;
    const look = at("look-cost").value.trim() === "" ? 0 : readNumber(at("look-cost"), isCost, "a number from 0");
    const hasLook = at("look-cost").value.trim() !== "";
    const rows = labels.map((_, i) => actions.map((__, j) => readNumber(cell(i, j), isCost, "a number from 0")));
    if (look === null || rows.some((row) => row.includes(null))) return null;
    return hasLook ? rows.map((row) => [...row, look]) : rows;
  }

  const byModel = decide(start);

  function element(name, text, parent, attributes = {}) {
    const made = document.createElement(name);
    made.textContent = text;
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    parent.append(made);
    return made;
  }

  function showCounts(table, decisions) {
    const head = at("count-table").tHead;
    const body = at("count-table").tBodies[0];
    head.replaceChildren();
    body.replaceChildren();
    const first = head.insertRow();
    element("td", "", first);
    for (const name of decisions) element("th", name, first, { scope: "col" });
    for (const name of ["recall", "cost per row"]) element("th", name, first, { scope: "col" });
    table.forEach((row, i) => {
      const line = body.insertRow();
      element("th", labels[i], line, { scope: "row" });
      const size = row.reduce((sum, one) => sum + one, 0);
      row.forEach((one, j) => element("td", count(one), line, { class: i === j ? "right" : "", "data-value": one }));
      element("td", percent(size > 0 ? row[i] / size : NaN), line);
      element("td", digits(row.reduce((sum, one, j) => sum + one * current[i][j], 0) / total, 4), line);
    });
  }

  /** A field of a CSV file, in quotation marks where it needs them. */
  const field = (text) => (/[",\n;]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

  let current = start;

  function update() {
    const costs = readCosts();
    if (costs === null) {
      show("cost-help", "Every cost must be a number from 0.");
      return;
    }
    current = costs;
    const decisions = names();
    const chosen = decide(costs);
    const found = judge(costs, chosen);
    const saved = found.habitCost - found.cost;
    let changed = 0;
    for (let i = 0; i < nRows; i += 1) if (chosen[i] !== byModel[i]) changed += weightOf(i);
    show("cost-help", "");
    show("out-cost", digits(found.cost, 4), found.cost);
    show("out-habit", `${digits(found.habitCost, 4)} with ${decisions[found.habit]} for every row`, found.habitCost);
    show("out-saved", digits(saved, 4), saved);
    show("out-share", found.habitCost > 0 ? `${percent(saved / found.habitCost)} of the cost of that decision` : "");
    show("out-changed", count(changed), changed);
    show("out-changed-share", `${percent(changed / total)} of the rows`);
    showCounts(found.table, decisions);
    const lines = [["", ...decisions], ...costs.map((row, i) => [labels[i], ...row.map(String)])];
    at("costs-file").value = lines.map((line) => line.map(field).join(",")).join("\n");
    at("costs-file").rows = Math.min(lines.length, 12);
    show("copy-status", "");
  }

  function reset() {
    start.forEach((row, i) => row.forEach((cost, j) => { cell(i, j).value = cost; }));
    at("look-cost").value = "";
    update();
  }

  // -- one class against the rest -----------------------------------------------------------------------------------
  function openClass() {
    const place = at("one-class-page");
    place.replaceChildren();
    if (at("class-choice").value === "") return;
    const page = data.pages[Number(at("class-choice").value)];
    const frame = document.createElement("iframe");
    frame.title = `${page.label} against the rest`;
    frame.id = "one-class-frame";
    const parts = { "@CRCEN-STYLE@": at("page-style").textContent, "@CRCEN-SCRIPT@": at("page-script").textContent };
    frame.srcdoc = page.html.replace(/@CRCEN-STYLE@|@CRCEN-SCRIPT@/g, (mark) => parts[mark]);
    frame.addEventListener("load", () => {
      const fit = () => { frame.height = Math.ceil(frame.contentDocument.body.getBoundingClientRect().height) + 8; };
      fit();
      if (window.ResizeObserver) new ResizeObserver(fit).observe(frame.contentDocument.body);
    });
    place.append(frame);
  }

  at("cost-form").addEventListener("submit", (event) => event.preventDefault());
  at("cost-form").addEventListener("input", update);
  at("reset").addEventListener("click", reset);
  at("copy").addEventListener("click", () => copy(at("costs-file")));
  at("class-choice").addEventListener("change", openClass);
  update();
}

(data.explorer ? pricePage : costPage)();
