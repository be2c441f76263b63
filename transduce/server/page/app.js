/** The playground: one form, one answer at a time. */

import { apiKey, events, request } from "./api.js";
import { audioSource } from "./audio.js";
import { startGauges } from "./gauges.js";
import { imageSource } from "./images.js";
import { transcribe } from "./live.js";
import { ENDINGS, readable, TASKS, tasksOf } from "./tasks.js";

const $ = (id) => document.getElementById(id);

let models = [];
let clip = null;
let urls = []; // of images
let running = null; // the AbortController of the answer under way
let written = null; // the answer as a file: { text, name }

const model = () => models.find(({ id }) => id === $("model").value);
const task = () => TASKS[document.querySelector("#tasks input:checked")?.value];
const typed = () => ($("text").value.trim() ? $("text").value : null);
const seen = () => (typed() || urls.length ? { text: typed(), urls } : null);
const source = () => ({ text: typed(), images: seen(), audio: clip })[task()?.source] ?? null;

/* What the server can do */

async function loadModels() {
  try {
    models = (await (await request("v1/models")).json()).data;
    $("key").hidden = $("error").hidden = true;
    $("model").replaceChildren(...models.map(({ id }) => new Option(id, id)));
    showTasks();
  } catch (cause) {
    showError(cause);
    if (cause.status !== 401) setTimeout(loadModels, 2000); // it may still be loading
  }
}

function showTasks() {
  const able = tasksOf(model());
  document.querySelectorAll("#tasks label").forEach((label) => label.remove());
  $("tasks").append(...able.map((name, index) => taskChoice(name, index === 0)));
  showSource();
}

function taskChoice(name, checked) {
  const label = document.createElement("label");
  const radio = Object.assign(document.createElement("input"), { type: "radio", name: "task", value: name, checked });
  label.append(radio, TASKS[name].label);
  return label;
}

function showSource() {
  const kind = task().source;
  $("text").hidden = kind === "audio";
  $("images").hidden = kind !== "images";
  $("audio").hidden = kind !== "audio";
  const fits = (field) => field.dataset.source.split(" ").includes(kind);
  document.querySelectorAll("[data-source]").forEach((field) => (field.hidden = !fits(field)));
  refresh();
}

/* Running */

async function run() {
  const { path, send, read } = task();
  const watch = stopwatch();
  const given = settings();
  running = new AbortController();
  begin();
  try {
    const init = { method: "POST", signal: running.signal, ...send($("model").value, source(), given) };
    const answer = await request(path, init);
    if (answer.headers.get("Content-Type").startsWith("text/event-stream")) await stream(answer, read, watch);
    else append(readable(keep(await answer.text(), given), given));
    $("outcome").textContent = watch.summary();
  } catch (cause) {
    if (cause.name === "AbortError") $("outcome").textContent = `Stopped after ${watch.elapsed()}`;
    else showError(cause);
  } finally {
    running = null;
    $("answer").ariaBusy = "false";
    refresh();
  }
}

async function stream(answer, read, watch) {
  for await (const event of events(answer)) {
    const { text, usage, cut } = read(event);
    append(text);
    watch.note(text, usage, cut);
  }
  if (clip) keep($("answer").textContent, { response_format: "text" });
}

/** While a microphone is heard, until its end: what stays, and in grey what may still change. */
async function live(sound, end) {
  if (!task().live) return;
  const watch = stopwatch();
  begin();
  try {
    const finish = await transcribe(sound, { model: $("model").value, ...settings() }, showLive);
    await end;
    await finish();
    $("outcome").textContent = `Live, ${watch.elapsed()}`;
  } catch (cause) {
    showError(cause);
  } finally {
    $("answer").ariaBusy = "false";
    refresh();
  }
}

function showLive(text, guess) {
  const open = Object.assign(document.createElement("span"), { className: "guess", textContent: guess });
  $("answer").replaceChildren(text, text && guess ? " " : "", open);
  $("answer").scrollTop = $("answer").scrollHeight;
}

/** What can be downloaded: the text, which is given back, under the clip's name. */
function keep(text, { response_format }) {
  written = { text, name: `${clip.name.replace(/\.[^.]*$/, "")}.${ENDINGS[response_format]}` };
  return text;
}

function begin() {
  written = null;
  $("error").hidden = true;
  $("answer").textContent = "";
  $("answer").ariaBusy = "true";
  $("outcome").textContent = "Running";
  refresh();
}

function append(text) {
  const answer = $("answer");
  const following = answer.scrollHeight - answer.scrollTop - answer.clientHeight < 40;
  answer.append(text);
  if (following) answer.scrollTop = answer.scrollHeight;
}

function settings() {
  const fields = [...$("settings").querySelectorAll("input, select")].filter((field) => !field.closest("label").hidden);
  return Object.fromEntries(fields.map(({ name, type, checked, value }) => [name, type === "checkbox" ? checked : value.trim()]));
}

/** Times an answer, and says what it took. */
function stopwatch() {
  const begun = performance.now();
  const since = (end) => duration(end - begun);
  let first = null;
  let tokens = null;
  let limited = false;
  return {
    elapsed: () => since(performance.now()),
    note(text, usage, cut) {
      if (text) first ??= performance.now();
      tokens = usage ?? tokens;
      limited ||= cut;
    },
    summary() {
      return [
        tokens && `${plural(tokens.read, "token")} in, ${tokens.written.toLocaleString("en")} out`,
        since(performance.now()),
        first && `first after ${since(first)}`,
        limited && "token limit reached",
      ].filter(Boolean).join(" · ");
    },
  };
}

const plural = (number, word) => `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;
const duration = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(ms < 10000 ? 2 : 1)} s`);

/* The page's own state */

function refresh() {
  $("run").disabled = !running && source() === null;
  $("run").textContent = running ? "Stop" : "Run";
  $("run").classList.toggle("running", Boolean(running));
  $("clear").hidden = source() === null;
  $("download").hidden = Boolean(running) || !written;
  $("copy").hidden = Boolean(running) || !$("answer").textContent || !navigator.clipboard;
}

function showError(cause) {
  if (cause.status === 401) return askForKey();
  fail(cause.title ?? "This page failed", cause.message);
}

function fail(title, message) {
  $("error").querySelector("strong").textContent = title;
  $("error").querySelector("p").textContent = message;
  $("error").hidden = false;
  $("outcome").textContent = "";
}

function askForKey() {
  $("key").hidden = false;
  $("outcome").textContent = "";
  $("key-hint").textContent = apiKey.get() ? "The server did not accept this one." : "This server asks for one. It stays in this tab.";
  $("key-value").focus();
}

function showLink(up) {
  const words = up ? "Connected" : "Unreachable";
  if ($("link").textContent !== words) $("link").textContent = words;
  $("link").classList.toggle("up", up);
}

function clear() {
  if (task().source === "audio") return sound.drop();
  images.drop();
  $("text").value = "";
  $("text").focus();
  refresh();
}

async function copy() {
  await navigator.clipboard.writeText($("answer").textContent);
  $("outcome").textContent = "Copied";
}

function download() {
  const url = URL.createObjectURL(new Blob([written.text], { type: "text/plain" }));
  Object.assign(document.createElement("a"), { href: url, download: written.name }).click();
  setTimeout(() => URL.revokeObjectURL(url)); // after the click is done
}

/* Wiring */

const sound = audioSource((chosen) => {
  clip = chosen;
  refresh();
  $(clip ? "run" : "file").focus(); // what had the focus is gone
}, fail, live);

const images = imageSource((chosen) => {
  urls = chosen;
  refresh();
});

$("work").addEventListener("submit", (event) => {
  event.preventDefault();
  if (running) running.abort();
  else if (source() !== null) run();
});
$("key").addEventListener("submit", (event) => {
  event.preventDefault();
  apiKey.set($("key-value").value.trim());
  $("error").hidden = true;
  loadModels();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") running?.abort();
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault(); // or a field, or the button, would submit as well
  if (!running && source() !== null) run();
});
$("model").addEventListener("change", showTasks);
$("tasks").addEventListener("change", showSource);
$("text").addEventListener("input", refresh);
$("clear").addEventListener("click", clear);
$("copy").addEventListener("click", copy);
$("download").addEventListener("click", download);

startGauges($("gauges"), showLink);
loadModels();
