"use strict";
(() => {
  const token = new URLSearchParams(location.search).get("token") || "";
  const $ = (id) => document.getElementById(id);
  let project = null, rows = { page: 0, sort: "", order: "down" }, timer = null, shownJob = "", asked = 0;

  const number = (value, digits = 3) => value == null ? "–" : Number(value).toLocaleString(undefined, { maximumSignificantDigits: digits });
  const counted = (n, noun) => `${number(n, 12)} ${noun}${n === 1 ? "" : "s"}`;
  const percent = (value) => value == null ? "–" : `${(100 * value).toLocaleString(undefined, { maximumFractionDigits: 1 })} %`;

  async function ask(path, options = {}) {
    const answer = await fetch(path, { ...options, headers: { Authorization: `Bearer ${token}`, ...(options.headers || {}) } });
    const found = await answer.json().catch(() => ({ error: "The application did not respond." }));
    if (!answer.ok) throw new Error(found.error || answer.statusText);
    return found;
  }
  const send = (path, value) => ask(path, { method: "POST", body: JSON.stringify(value || {}) });
  const upload = (path, file) => ask(`${path}?name=${encodeURIComponent(file.name)}`, { method: "POST", body: file });
  const own = (path = "") => `/api/projects/${project.id}${path}`;
  const link = (path) => `${own(path)}${path.includes("?") ? "&" : "?"}token=${encodeURIComponent(token)}`;

  function say(text) {
    $("message").textContent = text;
    $("message").hidden = !text;
    if (text) $("message").scrollIntoView({ block: "nearest" });
  }
  const attempt = (work) => async (event) => {
    if (event && event.type === "submit") event.preventDefault();
    say("");
    try { await work(event); } catch (error) { say(error.message); }
  };
  function element(name, text, attributes = {}) {
    const found = document.createElement(name);
    if (text != null) found.textContent = text;
    for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
    return found;
  }
  function list(id, texts) { $(id).replaceChildren(...texts.map((text) => element("li", text))); }
  function choices(select, pairs, chosen) {
    select.replaceChildren(...pairs.map(([value, text]) => element("option", text, { value })));
    if (pairs.some(([value]) => value === chosen)) select.value = chosen;
  }

  function show(found, focus) {
    project = found;
    history.replaceState(null, "", `#${project.id}`);
    $("title").textContent = project.name;
    document.title = `${project.name} – crcen`;
    const job = project.job, results = project.results, running = job && job.status === "running";
    $("progress").hidden = !running;
    for (const one of document.querySelectorAll("input[type=file], #fit, #target")) one.disabled = running;
    if (running) {
      $("progress-title").textContent = job.title;
      if (job.share == null) $("bar").removeAttribute("value"); else $("bar").value = job.share;
      $("elapsed").textContent = `${counted(Math.round(job.seconds), "second")}${job.share == null ? "" : `, ${percent(job.share)}`}`;
      clearTimeout(timer);
      timer = setTimeout(poll, 500);
    }
    for (const place of document.querySelectorAll("pre.command[data-step]")) {
      const command = project.commands[place.dataset.step];
      place.hidden = !command;
      place.textContent = command || "";
    }
    if (results.look) showColumns(results.look.values);
    if (results.fit) showFit(results.fit);
    $("step-score").hidden = $("step-save").hidden = !project.files.includes("model");
    if (project.files.includes("model")) $("get-model").href = link("/model");
    $("scored").hidden = !results.score;
    if (results.score && !running) showScored(results.score);
    if (project.saved) $("saved-place").textContent = `Saved as ${project.saved}.`;
    $("monitored").hidden = !results.monitor;
    if (results.monitor) {
      $("monitor-status").textContent = results.monitor.values.is_alarm ? "Alarm: check the model." : "Quiet: no sign of a change.";
      $("monitor-text").textContent = results.monitor.text;
      const page = link("/monitor") + `&call=${results.monitor.values.call}`;
      if ($("monitor-page").getAttribute("src") !== page) $("monitor-page").src = page;
    }
    const state = job ? `${project.id} ${job.step} ${job.status} ${Object.values(project.commands).join()}` : "";
    if (!running && state !== shownJob) {
      if (job && (job.status === "failed" || job.status === "cancelled")) say(job.error || "The step was cancelled; its results were discarded.");
      const next = { look: results.look && results.look.values.target ? "goal-title" : "columns-title", fit: "result-title", score: "score-title", monitor: "save-title" };
      if (focus && job && job.status === "done") $(next[job.step]).focus();
      shownJob = state;
    }
  }
  async function poll() {
    const number = ++asked;
    try {
      const found = await ask(own());
      if (number === asked) show(found, true);
    } catch (error) { say(`${error.message} Is crcen app still running?`); timer = setTimeout(poll, 3000); }
  }
  const step = (work) => attempt(async (event) => { asked++; show(await work(event), true); });

  function showColumns(look) {
    $("step-columns").hidden = $("step-goal").hidden = false;
    const dropped = new Set([...document.querySelectorAll("#columns input:not(:checked)")].map((one) => one.value));
    $("columns-summary").textContent = `${counted(look.rows, "row")}, ${counted(look.columns.length, "column")}${look.target ? ` and the target ${look.target}` : ""}.`;
    const notes = [...look.notes];
    for (const one of look.columns) if (one.suspect || look.suspects.includes(one.name)) notes.push(`${one.name} alone predicts the target almost perfectly: leave it out if it is known only afterwards.`);
    list("columns-notes", notes);
    $("columns").tBodies[0].replaceChildren(...look.columns.map((one) => {
      const line = element("tr"), use = element("td"), isOut = one.kind === "left out";
      if (!isOut) {
        const box = element("input", null, { type: "checkbox", value: one.name, "aria-label": `Use ${one.name}` });
        box.checked = !dropped.has(one.name);
        use.append(box);
      }
      line.append(use, element("th", one.name, { scope: "row" }), element("td", one.kind),
        element("td", one.n_missing ? number(one.n_missing, 12) : "–", { class: "number" }), element("td", number(one.n_values, 12), { class: "number" }),
        element("td", [one.plan, one.note, one.examples.length ? `such as ${one.examples.join(", ")}` : ""].filter(Boolean).join("; ")));
      return line;
    }));
    if (!look.target) {
      choices($("target"), [["", "Choose a column"], ...look.columns.map((one) => [one.name, one.name])], "");
      $("classes").hidden = true;
      return;
    }
    if (![...$("target").options].some((one) => one.value === look.target)) choices($("target"), [look.target, ...look.columns.map((one) => one.name)].map((one) => [one, one]));
    $("target").value = look.target;
    const labels = look.labels.map((one) => String(one.label)), many = labels.length > 2;
    if (!labels.length) { $("classes").hidden = true; return; }
    const before = $("positive").dataset.target === look.target ? $("positive").value : null;
    const pairs = look.labels.map((one) => [String(one.label), `${one.label} (${counted(one.rows, "row")})`]);
    choices($("positive"), many ? [["", "All of them: predict the class"], ...pairs] : pairs, before);
    if (before === null) $("positive").value = many ? "" : String(look.labels.reduce((a, b) => b.rows < a.rows ? b : a).label);
    $("positive").dataset.target = look.target;
    if ($("weights").dataset.labels !== labels.join("\n")) {
      $("weights").dataset.labels = labels.join("\n");
      $("weights").replaceChildren(...labels.map((label, i) => {
        const one = element("label", `${label} `);
        const input = element("input", null, { type: "text", inputmode: "decimal", size: 6, value: 1, id: `weight-${i}` });
        input.dataset.label = label;
        one.append(input);
        return one;
      }));
      showCosts(labels);
    }
    $("classes").hidden = false;
    showPrices();
  }
  function showCosts(labels) {
    const head = element("tr");
    head.append(element("td"), ...labels.map((label) => element("th", label, { scope: "col" })));
    $("costs").tHead.replaceChildren(head);
    $("costs").tBodies[0].replaceChildren(...labels.map((label, i) => {
      const line = element("tr");
      line.append(element("th", label, { scope: "row" }), ...labels.map((decision, j) => {
        const cell = element("td");
        cell.append(element("input", null, { type: "text", inputmode: "decimal", size: 5, value: i === j ? 0 : 1, id: `cost-${i}-${j}`, "aria-label": `Cost of deciding ${decision} for ${label}` }));
        return cell;
      }));
      return line;
    }));
  }
  function showPrices() {
    const many = $("positive").value === "";
    $("price-many").hidden = !many;
    $("price-two").hidden = many;
    $("limit").disabled = $("effort").value === "quick";
  }

  function showFit(fit) {
    $("step-result").hidden = false;
    const values = fit.values, held = values.out_of_fold || {}, price = values.price || {};
    const classes = held.classes || [], found = classes.find((one) => String(one.label) === String(price.positive));
    const range = (one) => one && one.value != null ? `${percent(one.value)} (${percent(one.low)} to ${percent(one.high)})` : "–";
    const figures = [["Rows", number(values.rows && values.rows.all, 12)]];
    if (found) figures.push([`Share of ${found.label} that is found`, percent(found.recall.value)], ["Alarms that are right", percent(found.precision.value)], ["Alarm above a probability of", percent(price.threshold)]);
    if (held.cost_per_1000) figures.push(["Cost per 1,000 rows", number(held.cost_per_1000.value)]);
    figures.push(["Seconds", number(values.seconds, 2)]);
    $("figures").replaceChildren(...figures.map(([title, text]) => {
      const box = element("div");
      box.append(element("dt", title), element("dd", text));
      return box;
    }));
    $("class-table").tBodies[0].replaceChildren(...classes.map((one) => {
      const line = element("tr");
      line.append(element("th", one.label, { scope: "row" }), element("td", number(one.rows, 12), { class: "number" }), element("td", number(one.decided, 12), { class: "number" }), element("td", range(one.recall)), element("td", range(one.precision)));
      return line;
    }));
    list("fit-notes", values.notes || []);
    $("fit-text").textContent = fit.text;
    $("report-button").dataset.src = link("/report") + `&v=${encodeURIComponent(project.commands.fit)}`;
    if (!$("report").hidden && $("report").getAttribute("src") !== $("report-button").dataset.src) $("report").src = $("report-button").dataset.src;
  }

  let shownScore = "";
  function showScored(score) {
    list("score-notes", [...(score.values.notes || []), ...(score.values.unlike || []).map((one) => one.sentence || `${one.column} differs from training`)]);
    $("score-summary").textContent = score.text.split("\n")[0];
    for (const kind of ["csv", "comma", "xlsx"]) $(`get-${kind}`).href = link(`/scored?kind=${kind}`);
    if (shownScore !== score.text + project.commands.score) {
      shownScore = score.text + project.commands.score;
      rows = { page: 0, sort: "probability", order: "down" };
      $("search").value = "";
      $("decision").replaceChildren();
      $("reasons").hidden = true;
      attempt(showRows)();
    }
  }
  async function showRows() {
    const query = new URLSearchParams({ page: rows.page, sort: rows.sort, order: rows.order, search: $("search").value, decision: $("decision").value || "" });
    const found = await ask(own(`/rows?${query}`));
    if (!$("decision").options.length) choices($("decision"), [["", "all"], ...found.decisions.map((one) => [one, one])], "");
    $("found").textContent = `${number(found.found, 12)} of ${counted(found.all, "row")}`;
    $("page").textContent = `Page ${found.page + 1} of ${found.pages}`;
    $("previous").disabled = found.page === 0;
    $("next").disabled = found.page + 1 >= found.pages;
    const first = found.columns.filter((one) => one === "decision" || one.startsWith("probability"));
    const order = [...first, ...found.columns.filter((one) => !first.includes(one))].map((one) => found.columns.indexOf(one));
    const head = element("tr");
    head.append(element("th", "Why", { scope: "col" }));
    for (const i of order) {
      const name = found.columns[i], isSorted = rows.sort === name;
      const cell = element("th", null, { scope: "col", "aria-sort": isSorted ? (rows.order === "down" ? "descending" : "ascending") : "none" });
      const button = element("button", `${name}${isSorted ? (rows.order === "down" ? " ↓" : " ↑") : ""}`, { type: "button" });
      button.addEventListener("click", attempt(async () => {
        rows = { page: 0, sort: name, order: isSorted && rows.order === "down" ? "up" : "down" };
        await showRows();
      }));
      cell.append(button);
      head.append(cell);
    }
    $("rows").tHead.replaceChildren(head);
    const decision = found.columns.indexOf("decision"), positive = (project.results.score.values.positive ?? (project.results.score.values.price || {}).positive);
    $("rows").tBodies[0].replaceChildren(...found.rows.map((one) => {
      const line = element("tr", null, String(one.cells[decision]) === String(positive) ? { class: "alarm" } : {});
      const why = element("td"), button = element("button", "Why?", { type: "button", "aria-label": `Reasons for row ${one.row + 1}` });
      button.addEventListener("click", attempt(() => explain(one.row)));
      why.append(button);
      line.append(why);
      for (const i of order) {
        const value = one.cells[i], isNumber = typeof value === "number";
        const text = value == null ? "" : found.columns[i].startsWith("probability") && isNumber ? percent(value) : isNumber ? value.toLocaleString(undefined, { maximumSignificantDigits: 8, useGrouping: false }) : String(value);
        line.append(element("td", text, { class: i === decision ? "decision" : isNumber ? "number" : "" }));
      }
      return line;
    }));
  }
  async function explain(row) {
    const found = await ask(own(`/reasons?row=${row}`));
    const box = $("reasons");
    box.hidden = false;
    box.querySelector("h3").textContent = `Reasons for row ${row + 1}${found.about ? `: ${found.about}` : ""}`;
    box.querySelector("ul").replaceChildren(...found.reasons.map((text) => element("li", text)));
    box.querySelector("pre").textContent = found.command;
    box.querySelector("h3").focus();
  }

  const picked = (event) => { const file = event.target.files[0]; if (!file) throw new Error("Choose a file."); $("progress").hidden = false; $("progress-title").textContent = "Copying the file"; return file; };
  const forget = () => { for (const id of ["step-columns", "step-goal", "step-result", "step-score", "step-save", "report"]) $(id).hidden = true; $("report-button").setAttribute("aria-expanded", "false"); shownScore = ""; delete $("positive").dataset.target; $("columns").tBodies[0].replaceChildren(); };
  const uploaded = (work) => (event) => step(async () => { try { return await work(picked(event)); } catch (error) { $("progress").hidden = true; throw error; } })(event);
  $("table-file").addEventListener("change", uploaded(async (file) => { const found = await upload("/api/projects", file); forget(); return found; }));
  $("score-file").addEventListener("change", uploaded((file) => upload(own("/score"), file)));
  $("monitor-file").addEventListener("change", uploaded((file) => upload(own("/monitor"), file)));
  $("target").addEventListener("change", step(() => send(own("/target"), { target: $("target").value })));
  $("positive").addEventListener("change", showPrices);
  $("effort").addEventListener("change", showPrices);
  $("cancel").addEventListener("click", step(() => send(own("/cancel"))));
  for (const one of document.querySelectorAll("#price-two input[type=text]")) one.addEventListener("focus", () => { $(one.id.replace("value", "price")).checked = true; });
  for (const name of ["weights", "costs"]) $(name).addEventListener("focusin", () => { $(`classes-${name}`).checked = true; });
  $("step-goal").addEventListener("submit", step(() => {
    const many = $("positive").value === "";
    const kind = document.querySelector(`input[name=${many ? "price-classes" : "price"}]:checked`).value;
    const costs = () => ({ labels: $("weights").dataset.labels.split("\n"), costs: [...$("costs").tBodies[0].rows].map((line) => [...line.querySelectorAll("input")].map((one) => one.value)) });
    const value = kind === "costs" ? costs() : kind === "weights" ? Object.fromEntries([...document.querySelectorAll("#weights input")].map((one) => [one.dataset.label, one.value])) : ($(`value-${kind}`) || {}).value;
    const drop = [...document.querySelectorAll("#columns input:not(:checked)")].map((one) => one.value).filter((one) => one !== $("target").value);
    return send(own("/fit"), { target: $("target").value, positive: many ? null : $("positive").value, price: kind, value, drop, effort: $("effort").value, time_limit: $("limit").value });
  }));
  $("report-button").addEventListener("click", () => {
    const isShown = $("report").hidden;
    if (isShown && $("report").getAttribute("src") !== $("report-button").dataset.src) $("report").src = $("report-button").dataset.src;
    $("report").hidden = !isShown;
    $("report-button").setAttribute("aria-expanded", String(isShown));
  });
  let typed = null;
  $("search").addEventListener("input", () => { clearTimeout(typed); typed = setTimeout(attempt(() => { rows.page = 0; return showRows(); }), 250); });
  $("decision").addEventListener("change", attempt(() => { rows.page = 0; return showRows(); }));
  $("previous").addEventListener("click", attempt(() => { rows.page--; return showRows(); }));
  $("next").addEventListener("click", attempt(() => { rows.page++; return showRows(); }));
  $("save-form").addEventListener("submit", step(() => send(own("/save"), { name: $("save-name").value })));

  attempt(async () => {
    const saved = await ask("/api/saved");
    $("saved").hidden = !saved.models.length;
    $("saved-list").replaceChildren(...saved.models.map((name) => {
      const line = element("li"), button = element("button", name, { type: "button" });
      button.addEventListener("click", step(async () => { const found = await send(`/api/saved/${encodeURIComponent(name)}`); forget(); return found; }));
      line.append(button);
      return line;
    }));
    if (location.hash.length > 1) {
      project = { id: location.hash.slice(1) };
      try { show(await ask(own()), false); } catch (error) { project = null; history.replaceState(null, "", location.pathname + location.search); say(error.message); }
    }
  })();
})();
