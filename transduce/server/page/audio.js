/** The source as sound: a clip dropped, chosen or recorded. Sent as the browser gives it; the server decodes. */

import { acceptDrops } from "./drops.js";

const $ = (id) => document.getElementById(id);

/**
 * Shows the clip's state, and calls `changed` with { blob, name } or null, `failed` with a title and a sentence, and
 * while it records `live` with the stream of sound and a promise of its end.
 */
export function audioSource(changed, failed, live) {
  let recorder = null;
  let url = null;

  function show(part) {
    for (const id of ["empty", "recording", "clip"]) $(id).hidden = id !== part;
  }

  function take(blob, name) {
    drop();
    url = URL.createObjectURL(blob);
    $("player").src = url;
    $("clip-name").textContent = name;
    $("clip-size").textContent = size(blob.size);
    show("clip");
    changed({ blob, name });
  }

  function drop() {
    if (url) URL.revokeObjectURL(url);
    url = null;
    $("player").removeAttribute("src");
    $("file").value = "";
    show("empty");
    changed(null);
  }

  async function record() {
    if (!navigator.mediaDevices) return failed("The microphone is out of reach", "Browsers record on https or localhost only.");
    try {
      const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
      recorder = listen(stream, take);
      show("recording");
      $("done").focus();
      live(stream, new Promise((resolve) => $("done").addEventListener("click", resolve, { once: true })));
    } catch (cause) {
      failed("The microphone is out of reach", cause.message);
    }
  }

  $("file").addEventListener("change", () => $("file").files[0] && take($("file").files[0], $("file").files[0].name));
  $("record").addEventListener("click", record);
  $("done").addEventListener("click", () => recorder.stop());
  acceptDrops($("audio"), ([file]) => file && take(file, file.name));
  return { drop };
}

function listen(stream, take) {
  const recorder = new MediaRecorder(stream);
  const parts = [];
  const begun = performance.now();
  const tick = () => ($("clock").textContent = clock((performance.now() - begun) / 1000));
  const timer = setInterval(tick, 250);
  tick();
  recorder.addEventListener("dataavailable", (event) => parts.push(event.data));
  recorder.addEventListener("stop", () => {
    clearInterval(timer);
    stream.getTracks().forEach((track) => track.stop());
    const type = recorder.mimeType.split(";")[0];
    take(new Blob(parts, { type }), `recording.${type.split("/")[1]}`);
  });
  recorder.start();
  return recorder;
}

const clock = (seconds) => `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;
const size = (bytes) => (bytes < 1e6 ? `${Math.max(1, Math.round(bytes / 1e3))} kB` : `${(bytes / 1e6).toFixed(1)} MB`);
