"use strict";
// The timeline: rows of spans, counters, arrows; zoom, pan, details. A row costs what is seen of it.

const LABEL = 168, RULER = 22, STAGE = 18, ROW = 17, GAP = 5, SERIES = 34, ARROWS = 300;
const canvas = $("view"), frame = $("frame"), pen = canvas.getContext("2d", { willReadFrequently: true });
// Resources that are hardly used: their rows come when they are asked for.
const QUIET = 0.05;
const quiet = new Set();
{
  const busy = new Map(D.whole.shares.map(([group, cycles]) => [group, cycles]));
  const serving = new Map();
  for (const track of D.tracks) serving.set(track.group, (serving.get(track.group) ?? true) && track.k.every((kind) => kind === D.serve));
  for (const [group, only] of serving) if (only && (busy.get(group) || 0) < QUIET * total) quiet.add(group);
}
const owner = (series) => [...quiet].find((group) => series.startsWith(group));
const choice = { quiet: false, words: "" };
let rows = [], rowOf = [];
function arrange() {
  const wanted = (name, group) => {
    const words = choice.words.toLowerCase().split(" ").filter(Boolean);
    if (words.length) return words.some((word) => name.toLowerCase().includes(word));
    return choice.quiet || group === undefined || !quiet.has(group);
  };
  rows = [];
  rowOf = [];
  let y = RULER + STAGE + GAP, group = null;
  D.tracks.forEach((track, number) => {
    if (!wanted(track.name, track.group)) return;
    if (group !== null && track.group !== group) y += GAP;
    rowOf[number] = { y, height: ROW, track, number, first: track.group !== group };
    rows.push(rowOf[number]);
    group = track.group;
    y += ROW + 1;
  });
  y += GAP;
  for (const name of Object.keys(D.series)) {
    if (!wanted(name, owner(name))) continue;
    const [at, value] = D.series[name];
    rows.push({ y, height: SERIES, series: name, at, value, most: value.reduce((m, v) => Math.max(m, v), 0) || 1 });
    y += SERIES + 4;
  }
  rows.height = y + 4;
  app.dataset.rows = String(rows.length);
  resize();
}
let width = 0, asked = false, hover = null, drawn = 0;

const xOf = (cycle) => LABEL + ((cycle - seen.a) / (seen.b - seen.a)) * (width - LABEL);
const cycleOf = (x) => seen.a + ((x - LABEL) / (width - LABEL)) * (seen.b - seen.a);

function redraw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    draw();
  });
}
function resize() {
  const ratio = window.devicePixelRatio || 1;
  width = frame.clientWidth;
  canvas.style.height = rows.height + "px";
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(rows.height * ratio);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  draw();
}

function draw() {
  pen.fillStyle = palette.card;
  pen.fillRect(0, 0, width, rows.height);
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  drawn = 0;
  drawRuler();
  const top = frame.scrollTop, bottom = top + frame.clientHeight;
  for (const row of rows) {
    if (row.y + row.height < top || row.y > bottom) continue;
    if (row.track) drawTrack(row);
    else drawSeries(row);
  }
  drawArrows();
  outline(seen.held, 2);
  outline(hover, 1);
  app.dataset.view = seen.a.toFixed(2) + "," + seen.b.toFixed(2);
  app.dataset.drawn = String(drawn);
}

function drawRuler() {
  const span = seen.b - seen.a;
  const rough = span / Math.max((width - LABEL) / 110, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 5, 10].find((n) => n * power >= rough) * power);
  pen.textAlign = "left";
  for (let at = Math.ceil(seen.a / step) * step; at <= seen.b; at += step) {
    const x = xOf(at);
    pen.fillStyle = palette.line;
    pen.fillRect(Math.round(x), RULER - 5, 1, rows.height);
    pen.fillStyle = palette.faint;
    if (x < width - 60) pen.fillText(fmt(at), x + 3, RULER / 2);
  }
  pen.fillStyle = palette.faint;
  pen.fillText("cycles (modelled)", 8, RULER / 2);
  pen.fillText("stages", 8, RULER + STAGE / 2);
  D.stages.forEach((stage, number) => {
    const low = Math.max(xOf(stage.start), LABEL), high = Math.min(xOf(stage.end), width);
    if (high <= low || high < LABEL || low > width) return;
    pen.fillStyle = number % 2 ? palette.row : palette.line;
    pen.fillRect(low, RULER, Math.max(high - low - 1, 0.5), STAGE - 2);
    label(number + " " + stage.name, low, high, RULER + STAGE / 2 - 1, palette.soft);
  });
}

function label(text, low, high, y, colour) {
  const room = high - low - 8;
  if (room < 22) return;
  const most = Math.floor(room / 5.6);
  pen.fillStyle = colour;
  pen.textAlign = "left";
  pen.fillText(text.length > most ? text.slice(0, Math.max(most - 1, 1)) + "\u2026" : text, low + 4, y);
}

// Pieces wider than a pixel and a half are rectangles; the rest is summed up by pixel column and kind.
function drawTrack(row) {
  const { track, y, height } = row, right = width, perCycle = (right - LABEL) / (seen.b - seen.a);
  pen.fillStyle = palette.row;
  pen.fillRect(LABEL, y, right - LABEL, height);
  pen.fillStyle = row.first ? palette.ink : palette.faint;
  pen.textAlign = "left";
  pen.fillText(track.name, row.first ? 8 : 20, y + height / 2, LABEL - 26);
  const columns = right - LABEL + 1, kinds = D.kinds.length;
  let dense = null;
  const { low, high, which } = track;
  const from = Math.max(lastAtMost(low, seen.a), 0);
  const wide = [];
  for (let i = from; i < low.length && low[i] < seen.b; i++) {
    const a = LABEL + (low[i] - seen.a) * perCycle, b = LABEL + (high[i] - seen.a) * perCycle;
    if (b <= LABEL) continue;
    if (b - a >= 1.5) {
      wide.push(i);
      continue;
    }
    dense = dense || new Float32Array(columns * kinds);
    const kind = track.k[which ? which[i] : i], column = Math.max(Math.floor(a) - LABEL, 0);
    const inside = Math.min(b, LABEL + column + 1) - Math.max(a, LABEL);
    dense[column * kinds + kind] += Math.max(inside, 0);
    if (column + 1 < columns && b - a > inside) dense[(column + 1) * kinds + kind] += b - a - inside;
  }
  for (const i of wide) {
    const index = which ? which[i] : i;
    const a = Math.max(LABEL + (low[i] - seen.a) * perCycle, LABEL), b = Math.min(LABEL + (high[i] - seen.a) * perCycle, right);
    pen.fillStyle = palette.kinds[track.k[index]];
    pen.fillRect(a, y, b - a > 4 ? b - a - 0.6 : b - a, height);
    label(D.names[track.t[index]], a, b, y + height / 2 + 0.5, palette.onKinds[track.k[index]]);
    drawn++;
  }
  if (dense) drawColumns(dense, columns, y, height);
}

// Stacked shares per pixel column, written as pixels: a rectangle per column and kind would take too long.
function drawColumns(dense, columns, y, height) {
  const ratio = pen.getTransform().a, wide = Math.floor((columns - 1) * ratio), tall = Math.round(height * ratio);
  const left = Math.round(LABEL * ratio), top = Math.round(y * ratio), kinds = D.kinds.length;
  const image = pen.getImageData(left, top, wide, tall), pixels = new Uint32Array(image.data.buffer);
  for (let x = 0; x < wide; x++) {
    const column = Math.floor(x / ratio);
    let at = tall;
    for (let kind = 0; kind < kinds && at > 0; kind++) {
      const part = dense[column * kinds + kind];
      if (part <= 0) continue;
      const until = Math.max(at - Math.max(Math.round(Math.min(part, 1) * tall), 1), 0);
      while (at > until) pixels[--at * wide + x] = palette.pixels[kind];
      drawn++;
    }
  }
  pen.putImageData(image, left, top);
}

// A counter as an area: per pixel column the highest value in it.
function drawSeries(row) {
  const { y, height, at, value, most } = row, base = y + height;
  pen.fillStyle = palette.row;
  pen.fillRect(LABEL, y, width - LABEL, height);
  pen.fillStyle = palette.ink;
  pen.textAlign = "left";
  pen.fillText(row.series, 8, y + 10, LABEL - 14);
  pen.fillStyle = palette.faint;
  pen.fillText("most " + short(most), 8, y + 24);
  pen.fillStyle = palette.work0;
  let i = Math.max(lastAtMost(at, seen.a), 0), peak = 0, column = -1;
  const flush = (next) => {
    if (column >= 0 && peak > 0) pen.fillRect(LABEL + column, base - (peak / most) * (height - 2), Math.max(next - column, 1), (peak / most) * (height - 2));
  };
  for (; i < at.length && at[i] < seen.b; i++) {
    const next = Math.max(Math.floor(xOf(at[i])) - LABEL, 0);
    if (next > column) {
      flush(next);
      column = next;
      peak = value[i];
    } else peak = Math.max(peak, value[i]);
    drawn++;
  }
  if (i > 0 && at.length) flush(Math.floor(xOf(Math.min(seen.b, total))) - LABEL);
}

function seenArrows() {
  if (!D.flows.length) return [];
  const [, fromTrack, fromCycle, toTrack, toCycle] = D.flows, found = [];
  const last = lastAtMost(fromCycle, seen.b);
  for (let i = 0; i <= last; i++) {
    if (toCycle[i] >= seen.a) found.push(i);
    if (found.length > ARROWS) return [];
  }
  return found.map((i) => ({ i, fromTrack: fromTrack[i], fromCycle: fromCycle[i], toTrack: toTrack[i], toCycle: toCycle[i] }));
}
function drawArrows() {
  const found = seenArrows();
  app.dataset.arrows = String(found.length);
  pen.save();
  pen.beginPath();
  pen.rect(LABEL, 0, width - LABEL, rows.height);
  pen.clip();
  for (const arrow of found) {
    const a = rowOf[arrow.fromTrack], b = rowOf[arrow.toTrack];
    if (!a || !b) continue;
    const x = xOf(arrow.fromCycle), u = xOf(arrow.toCycle), y = a.y + ROW / 2, v = b.y + ROW / 2;
    pen.strokeStyle = palette.mark;
    pen.globalAlpha = 0.4;
    pen.beginPath();
    pen.moveTo(x, y);
    const bend = Math.max((u - x) / 2, 10);
    pen.bezierCurveTo(x + bend, y, u - bend, v, u, v);
    pen.stroke();
    pen.beginPath();
    pen.fillStyle = palette.mark;
    pen.arc(u, v, 2.5, 0, 7);
    pen.fill();
  }
  pen.restore();
}

function outline(which, thick) {
  if (!which || !rowOf[which.track]) return;
  const row = rowOf[which.track], track = row.track;
  const a = Math.max(xOf(track.start[which.span]), LABEL), b = Math.min(xOf(track.end[which.span]), width);
  if (b < LABEL || a > width) return;
  pen.strokeStyle = palette.mark;
  pen.lineWidth = thick;
  pen.strokeRect(a - 0.5, row.y - 0.5, Math.max(b - a, 2), row.height + 1);
  pen.lineWidth = 1;
}

// Details of a span, with the user's line

function describe(which) {
  const track = D.tracks[which.track], i = which.span, start = track.start[i], end = track.end[i];
  const stage = D.stages[stageAt(start)];
  const source = track.l[i] >= 0 ? D.sources[track.l[i]] : stage && stage.source;
  const kind = D.kinds[track.k[i]];
  const parts = [
    `<b>${escaped(D.names[track.t[i]])}</b>`,
    `<span class="swatch" style="background:var(${kindColour[track.k[i]]})"></span>${escaped(kind)} on ${escaped(track.name)}`,
    `${fmt(end - start)} cycles (${micro(end - start)}), ${fmt(start)} to ${fmt(end)}`,
  ];
  if (track.o[i] >= 0) parts.push(`waits for <b>${escaped(D.names[track.o[i]])}</b>`);
  if (stage) parts.push(`in ${escaped(stage.name)}`);
  let text = parts.join(" &middot; ");
  if (source) text += `<br><code>${escaped(baseName(source[0]))}:${source[1]}&nbsp; ${escaped(source[2])}</code>`;
  return text;
}
function showDetails() {
  const which = hover || seen.held;
  $("details").innerHTML = which ? describe(which) : '<span class="hint">Point at a span for its details.</span>';
  app.dataset.details = which ? $("details").textContent : "";
}
function under(event) {
  const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  if (x < LABEL) return null;
  const row = rows.find((r) => r.track && y >= r.y && y < r.y + r.height + 1);
  if (!row) return null;
  // A pixel may be several cycles wide: what starts within it counts too.
  let span = spanAt(row.track, cycleOf(x));
  if (span < 0) span = spanAt(row.track, cycleOf(x + 1.5));
  return span < 0 ? null : { track: row.number, span };
}

// Moving about

function moved() {
  redraw();
  writeHash();
}
function zoom(factor, centre = (seen.a + seen.b) / 2) {
  const a = centre - (centre - seen.a) * factor;
  look(a, a + (seen.b - seen.a) * factor);
  moved();
}
function shift(cycles) {
  look(seen.a + cycles, seen.b + cycles);
  moved();
}
function show(start, end) {
  const margin = (end - start) * 0.02;
  look(start - margin, end + margin);
  moved();
  frame.scrollIntoView({ block: "nearest" });
}

let drag = null;
canvas.addEventListener("pointerdown", (event) => {
  drag = { x: event.clientX, a: seen.a, moved: false };
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointermove", (event) => {
  if (drag) {
    const cycles = ((drag.x - event.clientX) / (width - LABEL)) * (seen.b - seen.a);
    drag.moved = drag.moved || Math.abs(event.clientX - drag.x) > 3;
    look(drag.a + cycles, drag.a + cycles + seen.b - seen.a);
    moved();
    return;
  }
  hover = under(event);
  showDetails();
  redraw();
});
canvas.addEventListener("pointerup", (event) => {
  if (drag && !drag.moved) {
    seen.held = under(event);
    showDetails();
    moved();
  }
  drag = null;
});
canvas.addEventListener("pointerleave", () => {
  hover = null;
  showDetails();
  redraw();
});
canvas.addEventListener("wheel", (event) => {
  if (event.shiftKey) return;
  event.preventDefault();
  const x = event.clientX - canvas.getBoundingClientRect().left;
  if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) shift((event.deltaX / (width - LABEL)) * (seen.b - seen.a));
  else zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), cycleOf(Math.max(x, LABEL)));
}, { passive: false });
canvas.addEventListener("dblclick", () => show(0, total));
canvas.addEventListener("keydown", (event) => {
  const step = (seen.b - seen.a) / 5;
  const actions = {
    ArrowLeft: () => shift(-step), ArrowRight: () => shift(step), a: () => shift(-step), d: () => shift(step),
    "+": () => zoom(0.6), "=": () => zoom(0.6), w: () => zoom(0.6), "-": () => zoom(1 / 0.6), s: () => zoom(1 / 0.6),
    0: () => show(0, total), Escape: () => { seen.held = null; showDetails(); moved(); },
  };
  if (!actions[event.key] || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  actions[event.key]();
});
frame.addEventListener("scroll", redraw);
$("in").addEventListener("click", () => zoom(0.5));
$("out").addEventListener("click", () => zoom(2));
$("fit").addEventListener("click", () => show(0, total));
