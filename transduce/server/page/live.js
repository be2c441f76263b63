/** Live transcription: a stream of sound to the server's socket, text back while it is spoken. */

import { apiKey, ServerError } from "./api.js";

const ITEM = "conversation.item.input_audio_transcription.";

/** Calls `show` with the text that stays and the text that may change. Gives finish(), which waits for the rest. */
export async function transcribe(stream, { model, language, prompt }, show) {
  const context = new AudioContext();
  await context.audioWorklet.addModule("static/pcm.js");
  const socket = await open();
  const transcript = read(socket, show);
  const format = { type: "audio/pcm", rate: context.sampleRate };
  const transcription = { model, language: language || null, prompt: prompt || null };
  send(socket, "session.update", { session: { type: "transcription", audio: { input: { format, transcription } } } });
  const pcm = new AudioWorkletNode(context, "pcm");
  pcm.port.addEventListener("message", ({ data }) => socket.readyState === WebSocket.OPEN && socket.send(data));
  pcm.port.start();
  context.createMediaStreamSource(stream).connect(pcm);
  return async () => {
    await context.close();
    if (socket.readyState === WebSocket.OPEN) send(socket, "input_audio_buffer.commit");
    await transcript;
  };
}

const send = (socket, type, fields = {}) => socket.send(JSON.stringify({ type, ...fields }));

function open() {
  const url = new URL("v1/realtime", document.baseURI);
  url.protocol = url.protocol.replace("http", "ws");
  const key = apiKey.get();
  const socket = new WebSocket(url, ["realtime", ...(key ? [`openai-insecure-api-key.${key}`] : [])]);
  return new Promise((resolve, reject) => {
    socket.addEventListener("open", () => resolve(socket));
    socket.addEventListener("error", () => reject(new ServerError("Live transcription is out of reach", "The server opened no socket; its log says why.")));
  });
}

/** Resolves when all that was committed is complete, and no more follows. */
function read(socket, show) {
  const items = new Map(); // text by item, in their order
  const waiting = new Set();
  let guess = "";
  let ended = false;
  const tell = () => show([...items.values()].filter(Boolean).join(" "), guess);

  const readers = {
    [`${ITEM}delta`]: ({ item_id, delta }) => items.set(item_id, (items.get(item_id) ?? "") + delta),
    [`${ITEM}partial`]: ({ partial }) => (guess = partial),
    [`${ITEM}completed`]({ item_id, transcript }) {
      items.set(item_id, transcript);
      waiting.delete(item_id);
      guess = "";
    },
    [`${ITEM}failed`]({ item_id, error }) {
      waiting.delete(item_id);
      throw new ServerError("This could not be transcribed", error.message);
    },
    "input_audio_buffer.speech_stopped": ({ item_id }) => waiting.add(item_id),
    "input_audio_buffer.committed"({ item_id }) {
      ended ||= !waiting.has(item_id); // not by silence, but as finish() asked
      waiting.add(item_id);
    },
    error({ error }) {
      if (error.code !== "input_audio_buffer_commit_empty") throw new ServerError("The server refused this", error.message);
      ended = true; // nothing was left to commit
    },
  };

  const transcript = new Promise((resolve, reject) => {
    socket.addEventListener("message", ({ data }) => {
      const event = JSON.parse(data);
      try {
        readers[event.type]?.(event);
        tell();
        if (ended && !waiting.size) resolve();
      } catch (cause) {
        reject(cause);
      }
    });
    socket.addEventListener("close", () => reject(new ServerError("Live transcription broke off", "The connection ended.")));
  }).finally(() => socket.close());
  transcript.catch(() => {}); // finish() tells
  return transcript;
}
