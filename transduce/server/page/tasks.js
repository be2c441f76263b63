/** What models can be asked for: each task's route, its request, and how to read the events of its stream. */

/** Reads of an event are { text, usage, cut }: new text, token counts at the end, whether a limit ended the answer. */
export const TASKS = {
  generate: { label: "Text to text", source: "text", path: "v1/completions", send: completion, read: readCompletion },
  look: { label: "Images and text to text", source: "images", path: "v1/chat/completions", send: chat, read: readChat },
  transcribe: {
    label: "Transcribe", source: "audio", path: "v1/audio/transcriptions", send: speech, read: readSpeech, live: true,
  },
  translate: {
    label: "Translate to English", source: "audio", path: "v1/audio/translations", send: speech, read: readSpeech,
  },
};

/** The tasks of a model as the server describes it: what generates text may see images beside it. */
export function tasksOf({ tasks, input_modalities = [] }) {
  const named = tasks.map((name) => (name === "generate" && input_modalities.includes("image") ? "look" : name));
  return named.filter((name) => name in TASKS);
}

function completion(model, text, settings) {
  const { decoder_prompt } = settings;
  return streamed(settings, { model, prompt: text, ...(decoder_prompt && { decoder_prompt }) });
}

function chat(model, { text, urls }, settings) {
  const images = urls.map((url) => ({ type: "image_url", image_url: { url } }));
  const content = text ? [...images, { type: "text", text }] : images;
  return streamed(settings, { model, messages: [{ role: "user", content }] });
}

function streamed({ max_tokens, temperature }, asked) {
  const body = { ...asked, stream: true, stream_options: { include_usage: true } };
  if (max_tokens) body.max_tokens = Number(max_tokens);
  if (temperature) body.temperature = Number(temperature);
  return { headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
}

function readCompletion({ choices: [choice] = [], usage }) {
  return { text: choice?.text ?? "", usage: usage && counts(usage), cut: choice?.finish_reason === "length" };
}

function readChat({ choices: [choice] = [], usage }) {
  return { text: choice?.delta.content ?? "", usage: usage && counts(usage), cut: choice?.finish_reason === "length" };
}

/** Forms of a transcript: the ends of their files' names. Text alone is streamed. */
export const ENDINGS = { text: "txt", srt: "srt", vtt: "vtt", verbose_json: "json" };

function speech(model, clip, { response_format, words, ...settings }) {
  const timed = response_format !== "text";
  const asked = timed ? { response_format } : { stream: "true" };
  const body = new FormData();
  for (const [name, value] of Object.entries({ model, ...asked, ...settings })) if (value) body.append(name, value);
  if (timed) for (const each of words ? ["segment", "word"] : ["segment"]) body.append("timestamp_granularities[]", each);
  body.append("file", clip.blob, clip.name);
  return { body };
}

function readSpeech({ type, delta, usage }) {
  return { text: type === "transcript.text.delta" ? delta : "", usage: usage && counts(usage), cut: false };
}

/** A transcript that came as a whole, for a person: of JSON, a line for each segment, or each word. */
export function readable(written, { response_format }) {
  if (response_format !== "verbose_json") return written;
  const { segments = [], words, language } = JSON.parse(written);
  const line = ({ start, end, text, word }) => `${time(start)} – ${time(end)}  ${(text ?? word).trim()}`;
  return [...(language ? [`Language: ${language}`] : []), ...(words ?? segments).map(line)].join("\n");
}

const time = (seconds) => `${Math.floor(seconds / 60)}:${(seconds % 60).toFixed(2).padStart(5, "0")}`;

function counts(usage) {
  return { read: usage.prompt_tokens ?? usage.input_tokens, written: usage.completion_tokens ?? usage.output_tokens };
}
