"use strict";
// The page of several classes: costs that are typed decide the embedded rows again; a class opens its own explorer.
(() => {
  const data = JSON.parse(document.getElementById("report-data").textContent);
  const at = (id) => document.getElementById(id);
  const { y, p, weights, labels } = data.rows;
  const nRows = y.length;
  const weightOf = (i) => (weights ? weights[i] : 1);
  const total = y.reduce((sum, _, i) => sum + weightOf(i), 0);

  // -- numbers as text ----------------------------------------------------------------------------------------------
  const grouped = (value, places) => value.toLocaleString("en-US", { maximumFractionDigits: places });
  const count = (value) => grouped(value, Math.abs(value - Math.round(value)) < 1e-6 || value >= 100 ? 0 : 1);
  const digits = (value, places = 4) => {
    if (value === null || !Number.isFinite(value)) return "–";
    if (Math.abs(value) >= 10 ** places || value === 0) return grouped(value, 0);
    return String(Number(value.toPrecision(places)));
  };
  const percent = (share) => (Number.isFinite(share) ? `${Number((100 * share).toPrecision(3))}\u00a0%` : "–");

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
  const names = () => (at("look-cost").value.trim() === "" ? data.decisions : [...data.decisions, lookName()]);
  const lookName = () => (data.decisions.includes("review") ? "review by a person" : "review");

  function readNumber(input, isOptional) {
    const value = Number(input.value);
    const isGiven = input.value.trim() !== "";
    const isFine = isGiven ? Number.isFinite(value) && value >= 0 : isOptional;
    input.setCustomValidity(isFine ? "" : "a number from 0");
    return isFine ? value : null;
  }

  /** The costs as they stand there, or null where a cell holds no cost. */
  function readCosts() {
    const look = readNumber(at("look-cost"), true);
    const hasLook = at("look-cost").value.trim() !== "";
    const rows = labels.map((_, i) => data.decisions.map((__, j) => readNumber(cell(i, j), false)));
    if (look === null || rows.some((row) => row.includes(null))) return null;
    return hasLook ? rows.map((row) => [...row, look]) : rows;
  }

  const byModel = decide(data.costs);

  function show(id, text, value) {
    at(id).textContent = text;
    if (value !== undefined) at(id).dataset.value = value;
  }

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
    for (const name of ["recall", "cost a row"]) element("th", name, first, { scope: "col" });
    table.forEach((row, i) => {
      const line = body.insertRow();
      element("th", labels[i], line, { scope: "row" });
      const size = row.reduce((sum, one) => sum + one, 0);
      row.forEach((one, j) => element("td", count(one), line, { class: i === j ? "right" : "", "data-value": one }));
      element("td", percent(size > 0 ? row[i] / size : NaN), line);
      element("td", digits(row.reduce((sum, one, j) => sum + one * current[i][j], 0) / total), line);
    });
  }

  /** A field of a CSV file, in quotation marks where it needs them. */
  const field = (text) => (/[",\n;]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

  let current = data.costs;

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
    show("out-cost", digits(found.cost), found.cost);
    show("out-habit", `${digits(found.habitCost)} with ${decisions[found.habit]} for every row`, found.habitCost);
    show("out-saved", digits(saved), saved);
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
    data.costs.forEach((row, i) => row.forEach((cost, j) => { cell(i, j).value = cost; }));
    at("look-cost").value = "";
    update();
  }

  async function copyCosts() {
    const box = at("costs-file");
    try {
      await navigator.clipboard.writeText(box.value);
      show("copy-status", "Copied.");
    } catch {
      box.select();
      show("copy-status", document.execCommand("copy") ? "Copied." : "Selected: press Ctrl+C to copy.");
    }
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
    const parts = { "@CRCEN-STYLE@": at("page-style").textContent, "@CRCEN-SCRIPT@": at("one-script").textContent };
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
  at("copy").addEventListener("click", copyCosts);
  at("class-choice").addEventListener("change", openClass);
  update();
})();
