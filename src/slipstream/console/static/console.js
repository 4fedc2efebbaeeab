// What htmx does not do by itself: views of a body, copying, typed confirmation, plots, the slider.
"use strict";

const all = (selector, root = document) => [...root.querySelectorAll(selector)];

// -- Views of a body: one tab at a time, arrow keys between them

function choose(tab) {
  const list = tab.closest("[role=tablist]");
  for (const one of all("[role=tab]", list)) {
    const chosen = one === tab;
    one.setAttribute("aria-selected", chosen);
    one.tabIndex = chosen ? 0 : -1;
    document.getElementById(one.getAttribute("aria-controls")).hidden = !chosen;
  }
}

document.addEventListener("keydown", (event) => {
  const tab = event.target.closest?.("[role=tab]");
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!tab || !step) return;
  const tabs = all("[role=tab]", tab.closest("[role=tablist]"));
  const next = tabs[(tabs.indexOf(tab) + step + tabs.length) % tabs.length];
  choose(next);
  next.focus();
});

document.addEventListener("click", async (event) => {
  const tab = event.target.closest("[role=tab]");
  if (tab) choose(tab);
  const copy = event.target.closest("[data-copy]");
  if (copy) {
    await navigator.clipboard.writeText(document.getElementById(copy.dataset.copy).textContent);
    const label = copy.textContent;
    copy.textContent = "Copied";
    setTimeout(() => (copy.textContent = label), 1500);
  }
  const hold = event.target.closest("[data-hold]");
  if (hold) {
    const list = document.getElementById(hold.dataset.hold);
    const held = list.dataset.held === "yes";
    list.dataset.held = held ? "no" : "yes";
    hold.textContent = held ? "Pause" : "Go on";
  }
});

// -- Typed confirmation: the button works once the name is there; the server looks again

function unlock(field) {
  const button = field.form.querySelector("button[type=submit]");
  button.disabled = field.value.trim() !== field.dataset.expected;
}

document.addEventListener("input", (event) => {
  const field = event.target;
  if (field.matches("[data-expected]")) unlock(field);
  if (field.matches("[data-slider]")) showSlider(field);
});

// -- The slider through the time of a stream

function sliderTime(slider) {
  const first = Number(slider.dataset.first);
  const last = Number(slider.dataset.last);
  return new Date((first + ((last - first) * slider.value) / slider.max) * 1000);
}

function showSlider(slider) {
  const text = sliderTime(slider).toLocaleString();
  slider.setAttribute("aria-valuetext", text);
  slider.closest(".slider").querySelector("output").textContent = text;
}

document.addEventListener("change", (event) => {
  const slider = event.target;
  if (!slider.matches("[data-slider]")) return;
  const address = new URL(location);
  address.searchParams.set("start", sliderTime(slider).toISOString());
  address.searchParams.delete("go");
  location = address;
});

// -- Plots: asked for again every few seconds

const PLOT_SECONDS = 5;
const LINES = ["--accent", "--second"];
const plots = new Map();
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function short(number) {
  if (number == null) return "";
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (Math.abs(number) >= size) return `${+(number / size).toPrecision(3)}${unit}`;
  }
  return `${+number.toPrecision(3)}`;
}

function clock(seconds) {
  const parts = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  if (seconds % 60) parts.second = "2-digit";
  return new Date(seconds * 1000).toLocaleTimeString([], parts);
}

function makePlot(element, answer) {
  const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 },
    ticks: { show: false }, font: "11px system-ui, sans-serif" };
  const options = {
    width: element.clientWidth,
    height: element.clientHeight,
    cursor: { points: { size: 6 }, drag: { setScale: false } },
    scales: { y: { range: (_, low, high) => [0, Math.max(high || 0, 1) * 1.05] } },
    axes: [{ ...axis, space: 80, size: 28, values: (_, times) => times.map(clock) }, { ...axis, size: 48, values: (_, ticks) => ticks.map(short) }],
    series: [{}, ...answer.lines.map((line, at) => ({
      label: line.label, stroke: colour(LINES[at % LINES.length]), width: 2,
      points: { show: false }, spanGaps: true,
      fill: at ? undefined : colour("--accent-soft"),
    }))],
  };
  return new uPlot(options, [answer.times, ...answer.lines.map((line) => line.values)], element);
}

async function showPlot(element) {
  const answer = await fetch(element.dataset.plot).then((found) => (found.ok ? found.json() : null));
  if (!answer || !element.isConnected) return;
  const known = Math.max(...answer.lines.map((line) => line.values.filter((v) => v !== null).length));
  const waiting = element.querySelector(".waiting");
  if (known < 2) return;
  if (waiting) waiting.remove();
  const made = plots.get(element);
  if (made) made.setData([answer.times, ...answer.lines.map((line) => line.values)]);
  else plots.set(element, makePlot(element, answer));
}

function showPlots() {
  for (const element of all("[data-plot]")) showPlot(element).catch(() => {});
}

addEventListener("resize", () => {
  for (const [element, plot] of plots) {
    plot.setSize({ width: element.clientWidth, height: element.clientHeight });
  }
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const [element, plot] of plots) {
    plot.destroy();
    plots.delete(element);
  }
  showPlots();
});

// -- What arrives live: only the newest stay, and none while it is held

const LIVE_ROWS = 200;

document.addEventListener("htmx:sseBeforeMessage", (event) => {
  if (event.target.closest?.("[data-held=yes]")) event.preventDefault();
});
document.addEventListener("htmx:sseMessage", (event) => {
  const list = event.target.closest?.("[data-live]");
  if (!list) return;
  const empty = document.getElementById(list.dataset.live);
  if (empty) empty.hidden = true;
  for (const row of all(":scope > *", list).slice(LIVE_ROWS)) row.remove();
});

for (const [name, text, isOff] of [["htmx:sseOpen", "connected", false], ["htmx:sseError", "connection lost, trying again", true]]) {
  document.addEventListener(name, () => {
    for (const state of all("[data-state]")) {
      state.textContent = text;
      state.classList.toggle("off", isOff);
    }
  });
}

// -- What acts through htmx is disabled in the page as it arrives: a browser would do it in its own
// -- way, with a form's values in the address, or not at all

document.addEventListener("htmx:load", () => {
  for (const button of all("form[hx-post] [type=submit], button[hx-post]")) button.disabled = false;
  all("[data-expected]").forEach(unlock);
  for (const opened of all("details[open][hx-get]")) opened.dispatchEvent(new Event("toggle"));
});

document.addEventListener("DOMContentLoaded", () => {
  all("[data-slider]").forEach(showSlider);
  showPlots();
  setInterval(showPlots, PLOT_SECONDS * 1000);
});
