"use strict";
// Everything beside the timeline: figures, stages, roofline, levels, units, IR texts. Then the page starts.

function meter(parts, whole, wide) {
  const bars = parts.map(([colour, value]) => `<i style="width:${(100 * value) / Math.max(whole, 1)}%;background:var(${colour})"></i>`);
  return `<div class="meter${wide ? " wide" : ""}">${bars.join("")}</div>`;
}
function colourOf(kind) {
  const number = D.kinds.indexOf(kind);
  return number < 0 ? "--row" : kindColour[number];
}
function longest(record) {
  const first = Object.entries(record)[0];
  return first ? first : null;
}

function tiles() {
  const limiter = D.whole.shares[0], moved = Object.values(D.levels).reduce((n, bytes) => Math.max(n, bytes), 0);
  const figures = [
    ["device time, modelled", micro(D.cycles)],
    ["cycles at " + D.clock + " MHz", fmt(D.cycles)],
    ["fullest over the run", limiter ? `${limiter[0]} ${share(limiter[1], D.cycles)}` : "nothing ran"],
    ["stages, rounds", `${fmt(D.stages.length)}, ${fmt(D.whole.rounds)}`],
  ];
  if (moved) figures.push(["most moved at one level", sized(moved)]);
  if (D.whole.place) figures.push([`of the ${D.whole.place.unit} roof`, share(D.whole.place.attained, D.whole.place.limit)]);
  $("tiles").innerHTML = figures.map(([name, value]) => `<div class="tile"><span>${escaped(name)}</span><b>${escaped(value)}</b></div>`).join("");
}

function stageTable() {
  const placed = D.stages.some((stage) => stage.place);
  const head = ["#", "stage", "cycles", "of the run", "rounds", "limiter", "it waited for", "next fullest"].concat(placed ? ["bound by", "of the roof"] : []);
  const numeric = new Set(["cycles", "of the run", "rounds", "of the roof"]);
  const body = D.stages.map((stage, number) => {
    const cycles = stage.end - stage.start, [first, next] = stage.shares;
    const own = longest(stage.own), others = first ? stage.waits[first[0]] : 0;
    const full = first ? meter(Object.entries(first[2]).filter(([kind]) => D.kinds.includes(kind)).map(([kind, n]) => [colourOf(kind), n]), cycles) : "";
    const cells = [
      number,
      escaped(stage.name) + (stage.where ? `<div class="source">${escaped(stage.where)}</div>` : ""),
      fmt(cycles),
      share(cycles, D.cycles),
      stage.rounds,
      first ? `<b>${escaped(first[0])}</b> ${share(first[1], cycles)}${full}` : "nothing ran",
      own ? `${escaped(own[0])}, ${share(own[1], cycles)}` : others ? `nothing (others for it: ${fmt(others)})` : "nothing",
      next ? `${escaped(next[0])} ${share(next[1], cycles)}` : "nothing",
    ];
    if (placed) cells.push(stage.place ? stage.place.bound : "", stage.place ? share(stage.place.attained, stage.place.limit) : "");
    return `<tr class="go" data-stage="${number}">` + cells.map((cell, i) => `<td${numeric.has(head[i]) ? ' class="n"' : ""}>${cell}</td>`).join("") + "</tr>";
  });
  $("stages").innerHTML = `<thead><tr>${head.map((h) => `<th${numeric.has(h) ? ' class="n"' : ""}>${h}</th>`).join("")}</tr></thead><tbody>${body.join("")}</tbody>`;
  $("stages").addEventListener("click", (event) => {
    const row = event.target.closest("tr.go");
    if (row) show(D.stages[row.dataset.stage].start, D.stages[row.dataset.stage].end);
  });
}

// One plot per kind of work, both axes logarithmic.
function roofline() {
  if (!D.roofs.length || !D.stages.some((stage) => stage.place)) {
    $("roofline").innerHTML = '<p class="hint">The run recorded no work, traffic or peaks to place it by.</p>';
    return;
  }
  let points = 0;
  const plots = D.roofs.map(([unit, peak, bandwidth, memory, ridge]) => {
    const here = D.stages.map((stage, number) => ({ ...stage, number })).filter((stage) => stage.place && stage.place.unit === unit);
    if (!here.length) return "";
    const known = here.map((s) => s.place.intensity).filter((v) => v !== null);
    const left = Math.floor(Math.log10(Math.min(ridge, ...known)) - 0.3), right = Math.ceil(Math.log10(Math.max(ridge, ...known)) + 0.3);
    const bottom = Math.floor(Math.log10(Math.min(...here.map((s) => s.place.attained), bandwidth * 10 ** left))), top = Math.ceil(Math.log10(peak) + 0.1);
    const W = 620, H = 330, L = 58, B = 40, R = 14, T = 14;
    const x = (v) => L + ((Math.log10(v) - left) / (right - left)) * (W - L - R);
    const y = (v) => H - B - ((Math.log10(v) - bottom) / (top - bottom)) * (H - B - T);
    let out = "";
    for (let p = left; p <= right; p++) out += `<line class="grid" x1="${x(10 ** p)}" x2="${x(10 ** p)}" y1="${T}" y2="${H - B}"/><text x="${x(10 ** p)}" y="${H - B + 15}" text-anchor="middle">${short(10 ** p)}</text>`;
    for (let p = bottom; p <= top; p++) out += `<line class="grid" x1="${L}" x2="${W - R}" y1="${y(10 ** p)}" y2="${y(10 ** p)}"/><text x="${L - 6}" y="${y(10 ** p) + 4}" text-anchor="end">${short(10 ** p)}</text>`;
    const start = Math.max(10 ** left, 10 ** bottom / bandwidth);
    out += `<polyline class="roof" points="${x(start)},${y(bandwidth * start)} ${x(ridge)},${y(peak)} ${x(10 ** right)},${y(peak)}"/>`;
    out += `<text class="strong" x="${W - R - 4}" y="${y(peak) - 6}" text-anchor="end">${short(peak)} ${unit}/cycle</text>`;
    const slope = Math.sqrt(start * ridge), angle = (Math.atan2(y(peak) - y(bandwidth * start), x(ridge) - x(start)) * 180) / Math.PI;
    out += `<text class="strong" transform="translate(${x(slope)},${y(bandwidth * slope) - 7}) rotate(${angle})" text-anchor="middle">${short(bandwidth)} B/cycle (${escaped(memory)})</text>`;
    const labels = []; // a label that would lie on another is left to the pointer
    for (const stage of here) {
      const place = stage.place, u = x(place.intensity === null ? 10 ** right : place.intensity), v = y(place.attained);
      const radius = 4 + 6 * Math.sqrt((stage.end - stage.start) / total);
      out += `<circle class="point ${place.bound}" cx="${u}" cy="${v}" r="${radius}"><title>${escaped(stage.number + " " + stage.name)}: ${share(place.attained, place.limit)} of the roof, bound by ${place.bound}</title></circle>`;
      if (labels.every(([a, b]) => Math.abs(a - u) > 20 || Math.abs(b - v) > 11)) {
        labels.push([u, v]);
        out += `<text class="strong" x="${u + radius + 3}" y="${v + 4}">${stage.number}</text>`;
      }
      points++;
    }
    out += `<text x="${(L + W - R) / 2}" y="${H - 6}" text-anchor="middle">${unit} per byte of memory traffic</text>`;
    out += `<text transform="translate(12,${(T + H - B) / 2}) rotate(-90)" text-anchor="middle">${unit} per cycle</text>`;
    return `<svg viewBox="0 0 ${W} ${H}" role="img" aria-label="roofline in ${unit}">${out}</svg>`;
  });
  const legend = '<p class="hint"><span class="swatch" style="background:var(--work0)"></span>bound by compute &nbsp; <span class="swatch" style="background:var(--wait0)"></span>bound by memory &nbsp; numbers are stages, areas grow with cycles</p>';
  $("roofline").innerHTML = plots.join("") + legend;
  app.dataset.points = String(points);
}

function levels() {
  const found = Object.entries(D.levels), most = found.reduce((n, [, bytes]) => Math.max(n, bytes), 1);
  $("levels").innerHTML = found.length
    ? `<div class="level">${found.map(([name, bytes]) => `<span>${escaped(name)}</span>${meter([["--work0", bytes]], most)}<span>${fmt(bytes)} B &middot; ${short(bytes / total)} B/cycle</span>`).join("")}</div>`
    : '<p class="hint">The run recorded no traffic by level.</p>';
  const head = '<thead><tr><th class="n">cycles</th><th class="n">times</th><th>instruction, all units together</th></tr></thead>';
  $("top").innerHTML = head + D.whole.top.slice(0, 100).map(([name, cycles, times]) => `<tr><td class="n">${fmt(cycles)}</td><td class="n">${fmt(times)}</td><td>${escaped(name)}</td></tr>`).join("");
}

function units() {
  const head = '<thead><tr><th>which</th><th class="n">full</th><th>its cycles</th><th></th></tr></thead>';
  $("units").innerHTML = head + D.whole.shares.map(([group, busy, kinds]) => {
    const known = Object.entries(kinds).filter(([kind]) => D.kinds.includes(kind));
    return `<tr><td>${escaped(group)}</td><td class="n">${share(busy, D.cycles)}</td><td class="half">${meter(known.map(([kind, n]) => [colourOf(kind), n]), D.cycles, true)}</td><td>${escaped(known.map(([kind, n]) => `${kind} ${share(n, D.cycles)}`).join(", "))}</td></tr>`;
  }).join("");
}

// The printed levels of one launch beside each other. A line that names "file.py:12", and what a stage of the text holds,
// belong to the user's line.
function irLevels() {
  const launches = new Map();
  for (const [key, text] of Object.entries(D.texts)) {
    const cut = key.lastIndexOf("/"), name = key.slice(0, cut);
    if (!launches.has(name)) launches.set(name, []);
    launches.get(name).push([key.slice(cut + 1), text]);
  }
  app.dataset.launches = String(launches.size);
  if (!launches.size) return;
  $("ir").hidden = false;
  $("launch").innerHTML = [...launches.keys()].map((name) => `<option>${escaped(name)}</option>`).join("");
  const put = () => {
    const name = $("launch").value;
    $("panes").innerHTML = launches.get(name).map(([level, text]) => `<div class="pane"><h3>${escaped(level)}</h3><pre>${linked(name, text)}</pre></div>`).join("");
    app.dataset.panes = String(launches.get(name).length);
  };
  $("launch").addEventListener("change", put);
  $("panes").addEventListener("pointerover", (event) => {
    const line = event.target.dataset.line;
    for (const one of $("panes").querySelectorAll("span[data-line]")) one.classList.toggle("lit", line !== undefined && one.dataset.line === line);
  });
  put();
}
function linked(launch, text) {
  let current = "";
  return text.split("\n").map((line) => {
    const named = /([\w.-]+\.py):(\d+)/.exec(line), staged = /^\s*stage (\d+)\b/.exec(line);
    if (staged) {
      const stage = D.stages.find((one) => one.name === `${launch} stage ${staged[1]}`);
      current = stage && stage.source ? baseName(stage.source[0]) + ":" + stage.source[1] : "";
    } else if (/^\S|^ {2}\S/.test(line)) current = "";
    const key = named ? named[1] + ":" + named[2] : current;
    return `<span${key ? ` data-line="${escaped(key)}"` : ""}>${escaped(line) || " "}</span>`;
  }).join("");
}

function notes() {
  const list = (record) => Object.entries(record).map(([name, n]) => `${name} ${fmt(n)}`).join(", ");
  const host = Object.values(D.host).reduce((n, cycles) => n + cycles, 0);
  const lines = ["Every number is modelled time of a simulated machine; nothing here was measured on hardware."];
  lines.push("Assumed rather than measured: " + (D.assumed.join(", ") || "nothing") + ".");
  if (host) lines.push(`Host link, not in the cycles above: ${fmt(host)} cycles (${list(D.host)}).`);
  if (Object.keys(D.counters).length) lines.push("Counted: " + list(D.counters) + ".");
  $("notes").innerHTML = lines.map((line) => `<p>${escaped(line)}</p>`).join("");
}

function rowChoice() {
  const button = $("quiet");
  button.hidden = quiet.size === 0;
  const say = () => {
    const which = `${quiet.size} resource${quiet.size > 1 ? "s" : ""} below ${100 * QUIET} % full`;
    button.textContent = choice.quiet ? `hide ${which}` : `show ${which}`;
  };
  button.addEventListener("click", () => {
    choice.quiet = !choice.quiet;
    say();
    arrange();
  });
  $("words").addEventListener("input", () => {
    choice.words = $("words").value;
    arrange();
  });
  app.dataset.quiet = String(quiet.size);
  say();
}

function start() {
  document.title = D.name + " on " + D.machine;
  $("title").textContent = D.name;
  $("subtitle").innerHTML = `on ${escaped(D.machine)} at ${D.clock} MHz &nbsp; <span class="modelled">modelled, not measured</span>`;
  document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const used = D.kinds.map((kind, number) => [kind, number]).filter(([, number]) => D.tracks.some((track) => track.k.includes(number)));
  $("legend").innerHTML = used.map(([kind, number]) => `<span><span class="swatch" style="background:var(${kindColour[number]})"></span>${escaped(kind)}</span>`).join("");
  readHash();
  readPalette();
  tiles();
  stageTable();
  roofline();
  levels();
  units();
  irLevels();
  notes();
  rowChoice();
  arrange();
  showDetails();
  $("theme").addEventListener("click", () => {
    const root = document.documentElement;
    root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
    readPalette();
    redraw();
  });
  window.addEventListener("resize", resize);
  window.addEventListener("hashchange", () => {
    readHash();
    readPalette();
    showDetails();
    redraw();
  });
  app.dataset.spans = String(spanCount);
  app.dataset.stages = String($("stages").querySelectorAll("tr.go").length);
  app.dataset.ready = "1";
}
start();
