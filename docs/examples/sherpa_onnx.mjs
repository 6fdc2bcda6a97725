// Wav files through a folder of asrkit export --format sherpa-onnx with a transducer, after npm install sherpa-onnx:
// node sherpa_onnx.mjs FOLDER ZEROS a.wav …, with the number of zeros in the folder's README.md. It prints each file's
// name, a tab and its text, as asrkit decode does for several files.
import sherpa from "sherpa-onnx";

const [, , folder, zeros, ...files] = process.argv;
const [encoder, decoder, joiner] = ["encoder", "decoder", "joiner"].map((name) => `${folder}/${name}.onnx`);
const recognizer = sherpa.createOnlineRecognizer({
  featConfig: { sampleRate: 16000, featureDim: 80 },
  modelConfig: { transducer: { encoder, decoder, joiner }, tokens: `${folder}/tokens.txt`, debug: 0 },
});
for (const file of files) {
  const stream = recognizer.createStream();
  const { samples, sampleRate } = sherpa.readWave(file);
  stream.acceptWaveform(sampleRate, samples);
  const tail = new Float32Array((zeros * sampleRate) / 16000); // completes the last chunk
  stream.acceptWaveform(sampleRate, tail);
  while (recognizer.isReady(stream)) recognizer.decode(stream);
  console.log(`${file}\t${recognizer.getResult(stream).text}`);
  stream.free();
}
