/** What a model can be asked for: each task's route, its request, and how to read the events of its stream. */

/** Reads of an event are { text, usage, cut }: new text, token counts at the end, whether a limit ended the answer. */
export const TASKS = {
  generate: { label: "Text to text", source: "text", path: "v1/completions", send: completion, read: readCompletion },
  transcribe: { label: "Transcribe", source: "audio", path: "v1/audio/transcriptions", send: speech, read: readSpeech },
  translate: {
    label: "Translate to English", source: "audio", path: "v1/audio/translations", send: speech, read: readSpeech,
  },
};

function completion(model, text, settings) {
  const { max_tokens, temperature, decoder_prompt } = settings;
  const body = { model, prompt: text, stream: true, stream_options: { include_usage: true } };
  if (max_tokens) body.max_tokens = Number(max_tokens);
  if (temperature) body.temperature = Number(temperature);
  if (decoder_prompt) body.decoder_prompt = decoder_prompt;
  return { headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
}

function readCompletion({ choices: [choice] = [], usage }) {
  return { text: choice?.text ?? "", usage: usage && counts(usage), cut: choice?.finish_reason === "length" };
}

function speech(model, clip, settings) {
  const body = new FormData();
  for (const [name, value] of Object.entries({ model, stream: "true", ...settings })) if (value) body.append(name, value);
  body.append("file", clip.blob, clip.name);
  return { body };
}

function readSpeech({ type, delta, usage }) {
  return { text: type === "transcript.text.delta" ? delta : "", usage: usage && counts(usage), cut: false };
}

function counts(usage) {
  return { read: usage.prompt_tokens ?? usage.input_tokens, written: usage.completion_tokens ?? usage.output_tokens };
}
