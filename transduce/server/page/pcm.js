/** In the audio thread: sound as 16-bit integers, a tenth of a second at a time. */

class Pcm extends AudioWorkletProcessor {
  #held = new Int16Array(Math.round(sampleRate / 10));
  #count = 0;

  process([[channel = []]]) {
    for (const sample of channel) {
      this.#held[this.#count++] = Math.max(-1, Math.min(1, sample)) * 32767;
      if (this.#count === this.#held.length) this.#send();
    }
    return true;
  }

  #send() {
    this.port.postMessage(this.#held.slice());
    this.#count = 0;
  }
}

registerProcessor("pcm", Pcm);
