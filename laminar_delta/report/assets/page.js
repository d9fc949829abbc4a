"use strict";
// Names are whatever users gave: everything is shown through textContent, nothing through markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const root = document.documentElement;
  const media = matchMedia("(prefers-color-scheme: dark)");
  const LIMIT = 500;
  let chosen = 0;
  let drawing = 0;

  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : media.matches);
  const config = () => {
    const ink = isDark() ? "#e6eaf0" : "#1c2430";
    const line = isDark() ? "#323b47" : "#d9dee5";
    const text = { labelColor: ink, titleColor: ink };
    return {
      background: "transparent", font: "system-ui, sans-serif", view: { stroke: line },
      axis: { ...text, gridColor: line, domainColor: line, tickColor: line, labelLimit: 140 },
      legend: { ...text, labelLimit: 140 }, line: { color: "#3b7dd8" }, bar: { color: "#3b7dd8" }, point: { color: "#3b7dd8" },
    };
  };

  const cell = (tag, value, column) => {
    const made = document.createElement(tag);
    if (typeof value === "number") {
      made.className = "number";
      made.textContent = value.toLocaleString("en");
    } else if (column === "time" && value) {
      made.className = "number";
      made.textContent = value.slice(0, 19).replace("T", " ");
    } else {
      const inner = document.createElement("bdi");
      inner.textContent = value === true ? "yes" : value === false || value === null || value === undefined ? "" : String(value);
      made.append(inner);
    }
    if (column === "outcome") made.className = `outcome ${value}`;
    return made;
  };
  const fill = (table, columns, rows) => {
    const head = document.createElement("tr");
    for (const title of Object.values(columns)) {
      const made = cell("th", title);
      made.scope = "col";
      head.append(made);
    }
    const top = document.createElement("thead");
    top.append(head);
    const body = document.createElement("tbody");
    for (const row of rows) {
      const line = document.createElement("tr");
      for (const column of Object.keys(columns)) line.append(cell("td", row[column], column));
      body.append(line);
    }
    table.replaceChildren(top, body);
  };
  const columnsOf = (rows) => Object.fromEntries(Object.keys(rows[0] ?? {}).map((name) => [name, name]));

  const filters = () => {
    const number = (id) => (byId(id).value === "" ? null : Number(byId(id).value));
    return { from: number("from"), to: number("to"), outcome: byId("outcome").value };
  };
  // Rows without a checkpoint (takeovers, storage) stay; the others are those of the checkpoints that are asked for.
  const narrowed = (pipeline) => {
    const { from, to, outcome } = filters();
    const wanted = new Set(
      pipeline.checkpoints
        .filter((row) => (from === null || row.id >= from) && (to === null || row.id <= to) && (!outcome || row.outcome === outcome))
        .map((row) => row.id),
    );
    const all = from === null && to === null && !outcome;
    const keep = (rows) => (all ? rows : rows.filter((row) => !("id" in row) || row.id === null || wanted.has(row.id)));
    return {
      ...pipeline, checkpoints: keep(pipeline.checkpoints), sizes: keep(pipeline.sizes), sinks: keep(pipeline.sinks),
      offsets: keep(pipeline.offsets), events: keep(pipeline.events),
    };
  };

  const draw = async (name, chart, rows, turn) => {
    const figure = byId(`figure-${name}`);
    const place = byId(`chart-${name}`);
    figure.querySelector(".empty").hidden = rows.length > 0;
    place.hidden = rows.length === 0;
    const table = byId(`table-${name}`);
    table.hidden = rows.length === 0;
    const show = () => {
      if (!table.open) return;
      const made = document.createElement("table");
      fill(made, columnsOf(rows), rows.slice(0, LIMIT));
      table.querySelector(".scroll").replaceChildren(made);
    };
    table.ontoggle = show;
    show();
    place.setAttribute("aria-label", `${chart.title}: ${rows.length} rows; the table below says the same`);
    if (rows.length === 0) return place.replaceChildren();
    const spec = { ...chart.spec, datasets: { [chart.rows]: rows } };
    if (name === "sinks") spec.height = 26 * new Set(rows.map((row) => row.sink)).size;
    const inner = document.createElement("div");
    inner.style.width = "100%";
    place.replaceChildren(inner);
    const view = await vegaEmbed(inner, spec, { actions: false, renderer: "svg", config: config(), tooltip: { theme: isDark() ? "dark" : "light" } });
    if (turn !== drawing) view.finalize();
  };

  const render = async () => {
    const turn = ++drawing;
    document.body.dataset.drawn = "";
    const pipeline = data.pipelines[chosen];
    audit();
    if (!pipeline) return void (document.body.dataset.drawn = "all");
    const title = document.createElement("bdi");
    title.textContent = pipeline.name;
    byId("detail-title").replaceChildren("Pipeline ", title);
    byId("notes").replaceChildren(...pipeline.notes.map((note) => Object.assign(document.createElement("li"), { textContent: note })));
    for (const row of document.querySelectorAll("#overview tbody tr")) row.setAttribute("aria-current", String(row.dataset.pipeline === String(chosen)));
    const shown = narrowed(pipeline);
    byId("shown").textContent = `${shown.checkpoints.length} of ${pipeline.checkpoints.length} checkpoints`;
    fill(byId("checkpoints"), data.columns.checkpoints, [...shown.checkpoints].reverse().slice(0, LIMIT));
    fill(byId("recoveries"), data.columns.recoveries, [...shown.recoveries].reverse().slice(0, LIMIT));
    await Promise.all(Object.entries(data.charts).map(([name, chart]) => draw(name, chart, shown[chart.rows], turn)));
    if (turn === drawing) document.body.dataset.drawn = "all";
  };

  const audit = () => {
    const text = byId("find-audit").value.toLowerCase();
    const own = data.pipelines[chosen]?.name;
    const rows = data.audit.filter(
      (row) => (byId("audit-all").checked || row.pipeline === own) && (!text || Object.values(row).join(" ").toLowerCase().includes(text)),
    );
    byId("audited").textContent = `${Math.min(rows.length, LIMIT)} of ${rows.length} commits`;
    fill(byId("audit"), data.columns.audit, rows.slice(0, LIMIT));
  };

  const choose = (number) => {
    chosen = number;
    byId("pipeline").value = String(number);
    render();
  };
  const fromAddress = () => {
    const found = /^#pipeline-(\d+)$/.exec(location.hash);
    if (found && data.pipelines[Number(found[1])]) {
      choose(Number(found[1]));
      byId("detail").focus();
    }
  };

  byId("pipeline").append(
    ...data.pipelines.map((pipeline, number) => Object.assign(document.createElement("option"), { value: String(number), textContent: pipeline.name })),
  );
  byId("pipeline").addEventListener("change", (event) => choose(Number(event.target.value)));
  for (const id of ["from", "to", "outcome"]) byId(id).addEventListener("input", render);
  for (const id of ["find-audit", "audit-all"]) byId(id).addEventListener("input", audit);
  byId("find").addEventListener("input", (event) => {
    const text = event.target.value.toLowerCase();
    let count = 0;
    for (const row of document.querySelectorAll("#overview tbody tr")) {
      row.hidden = !data.pipelines[Number(row.dataset.pipeline)].name.toLowerCase().includes(text);
      count += row.hidden ? 0 : 1;
    }
    byId("found").textContent = `${count} of ${data.pipelines.length} pipelines`;
  });
  const label = () => {
    byId("theme").textContent = isDark() ? "Light" : "Dark";
    byId("theme").setAttribute("aria-pressed", String(isDark()));
  };
  byId("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    label();
    render();
  });
  media.addEventListener("change", () => { label(); render(); });
  addEventListener("hashchange", fromAddress);
  label();
  if (/^#pipeline-\d+$/.test(location.hash)) fromAddress();
  else choose(0);
})();
