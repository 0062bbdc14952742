"use strict";
// The data, unpacked into arrays; what is seen; small helpers. Nothing here draws.

const app = document.getElementById("app");
window.addEventListener("error", (event) => {
  app.dataset.errors = String(Number(app.dataset.errors) + 1);
  const trouble = document.getElementById("trouble");
  trouble.hidden = false;
  trouble.textContent = "This page failed: " + event.message;
});

const D = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const total = Math.max(D.cycles, 1);

function fmt(value, digits = 0) {
  return value.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits });
}
function short(value) {
  return value >= 100 ? fmt(value) : String(Number(value.toPrecision(3)));
}
function share(part, whole) {
  return (whole ? fmt((100 * part) / whole, 1) : "0") + "\u00a0%";
}
function micro(cycles) {
  const us = cycles / D.clock;
  return us >= 1000 ? fmt(us / 1000, 2) + " ms" : fmt(us, us < 10 ? 3 : 1) + " us";
}
function sized(bytes) {
  const [unit, size] = bytes >= 2 ** 30 ? ["GiB", 2 ** 30] : bytes >= 2 ** 20 ? ["MiB", 2 ** 20] : ["KiB", 2 ** 10];
  return fmt(bytes / size, 1) + " " + unit;
}
function escaped(text) {
  return String(text).replace(/[&<>"']/g, (c) => "&#" + c.charCodeAt(0) + ";");
}
function baseName(path) {
  return path.slice(path.lastIndexOf("/") + 1);
}

// Kinds of work take one family of colours, ways of waiting another; the order is the timeline's own.
const kindColour = [];
{
  let work = 0, wait = 0;
  for (const kind of D.kinds) {
    kindColour.push(D.work.includes(kind) ? "--work" + (work++ % 4) : "--wait" + (wait++ % 4));
  }
}
// Of "#rrggbb", 0 to 1: letters on it are dark or white.
function brightness(hex) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255);
  return 0.3 * r * r + 0.59 * g * g + 0.11 * b * b;
}
let palette = {};
function readPalette() {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue(name).trim();
  palette = { kinds: kindColour.map(get) };
  palette.pixels = palette.kinds.map((hex) => {
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
    return new Uint32Array(new Uint8ClampedArray([r, g, b, 255]).buffer)[0];
  });
  palette.onKinds = palette.kinds.map((hex) => (brightness(hex) > 0.3 ? "#101010" : "#ffffff"));
  for (const name of ["page", "card", "ink", "soft", "faint", "line", "row", "mark", "work0"]) palette[name] = get("--" + name);
}

function summed(distances) {
  const out = new Float64Array(distances.length);
  let at = 0;
  for (let i = 0; i < out.length; i++) out[i] = at += distances[i];
  return out;
}
// Of each track: its spans, and pieces that follow each other (`low`, `high`, `which` span).
for (const track of D.tracks) {
  track.start = summed(track.s);
  track.end = track.start.map((start, i) => start + track.d[i]);
  if (track.flat) {
    track.low = summed(track.flat.s);
    track.high = track.low.map((low, i) => low + track.flat.d[i]);
    track.which = track.flat.i;
  } else {
    track.low = track.start;
    track.high = track.end;
    track.which = null;
  }
}
const spanCount = D.tracks.reduce((n, track) => n + track.start.length, 0);

// Index of the last element that is at most `value`, -1 when there is none.
function lastAtMost(sorted, value) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
function spanAt(track, cycle) {
  const piece = lastAtMost(track.low, cycle);
  if (piece < 0 || cycle >= track.high[piece]) return -1;
  return track.which ? track.which[piece] : piece;
}
function stageAt(cycle) {
  return D.stages.findIndex((stage) => stage.start <= cycle && cycle < stage.end);
}

// What is seen: cycles from `a` to `b`, and the span whose details are held, from the address: #t=100-400&at=3:250
const seen = { a: 0, b: total, held: null };
const SMALLEST = 8;
function look(a, b) {
  let width = Math.min(Math.max(b - a, Math.min(SMALLEST, total)), total);
  if (!(width > 0)) width = total;
  const middle = (a + b) / 2;
  seen.a = Math.min(Math.max(middle - width / 2, 0), total - width);
  seen.b = seen.a + width;
}
function readHash() {
  const words = new URLSearchParams(location.hash.slice(1));
  const range = /^([\d.]+)-([\d.]+)$/.exec(words.get("t") || "");
  if (range) look(Number(range[1]), Number(range[2]));
  const at = /^(\d+):([\d.]+)$/.exec(words.get("at") || "");
  if (at && D.tracks[at[1]]) {
    const span = spanAt(D.tracks[at[1]], Number(at[2]));
    seen.held = span < 0 ? null : { track: Number(at[1]), span };
  }
  const theme = words.get("theme");
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
}
let writing = 0;
function writeHash() {
  clearTimeout(writing);
  writing = setTimeout(() => {
    const words = ["t=" + Math.round(seen.a) + "-" + Math.round(seen.b)];
    if (seen.held) words.push("at=" + seen.held.track + ":" + D.tracks[seen.held.track].start[seen.held.span]);
    history.replaceState(null, "", "#" + words.join("&"));
  }, 200);
}
