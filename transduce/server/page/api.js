/** All that speaks HTTP: the API key, errors in words, streams of events. Knows no element of the page. */

const KEY = "transduce-api-key";

const TITLES = {
  400: "The server refused this request",
  401: "The server asks for an API key",
  404: "This model cannot do that",
  408: "The request took too long",
  413: "This is too large for the server",
  429: "The server is busy",
  500: "The server failed at this request",
  503: "The server is not ready",
  504: "The request took too long",
};

/** What the server, or the way to it, said no with: a title, a sentence, and the HTTP status (0: none). */
export class ServerError extends Error {
  constructor(title, message, status = 0) {
    super(message);
    this.title = title;
    this.status = status;
  }
}

export const apiKey = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
};

/** fetch, with the key and with refusals as ServerError. A relative path stays below the page's own address. */
export async function request(path, init = {}) {
  const headers = new Headers(init.headers);
  if (apiKey.get()) headers.set("Authorization", `Bearer ${apiKey.get()}`);
  const response = await reached(fetch(path, { ...init, headers }));
  if (!response.ok) throw await refusal(response);
  return response;
}

/** The JSON events of a streamed response, until [DONE]. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let pending = "";
  for (;;) {
    const { done, value } = await reached(reader.read());
    if (done) throw new ServerError("The answer broke off", "The connection ended before the answer did.");
    const blocks = (pending + value).split(/\r?\n\r?\n/);
    pending = blocks.pop();
    for (const data of blocks.map(payload).filter(Boolean)) {
      if (data === "[DONE]") return;
      const event = JSON.parse(data);
      if (event.error) throw new ServerError("The answer broke off", event.error.message);
      yield event;
    }
  }
}

function payload(block) {
  const lines = block.split(/\r?\n/).filter((line) => line.startsWith("data:"));
  return lines.map((line) => line.slice(5).trim()).join("\n");
}

async function reached(promise) {
  try {
    return await promise;
  } catch (cause) {
    if (cause.name === "AbortError") throw cause;
    throw new ServerError("The server cannot be reached", "Check that it is running and that this page is still its own.");
  }
}

async function refusal(response) {
  const body = await response.json().catch(() => ({}));
  const wait = response.headers.get("Retry-After");
  const error = body.error ?? { message: `It answered ${response.status} ${response.statusText}.` };
  const advice = wait ? ` Try again in ${wait} s.` : "";
  return new ServerError(TITLES[response.status] ?? "The server answered with an error", error.message + advice, response.status);
}
