// The microphone's samples as int16 blocks of about 100 ms, at its own rate: the server resamples.
// Several channels are interleaved.
class Blocks extends AudioWorkletProcessor {
  constructor({ processorOptions: { channels } }) {
    super();
    this.channels = channels;
    this.block = new Int16Array(channels * Math.round(sampleRate / 10));
    this.filled = 0;
  }
  process([input]) {
    if (!input[0]) return true;
    for (let i = 0; i < input[0].length * this.channels; i++) {
      const sample = input[i % this.channels]?.[Math.floor(i / this.channels)] ?? 0;
      this.block[this.filled++] = Math.max(-1, Math.min(1, sample)) * 32767;
      if (this.filled === this.block.length) {
        this.port.postMessage(this.block.slice().buffer);
        this.filled = 0;
      }
    }
    return true;
  }
}
registerProcessor("blocks", Blocks);
