// A wav file through a folder of asrkit export --format sherpa-onnx with a transducer, after npm install sherpa-onnx:
// node sherpa_onnx.mjs FOLDER a.wav ZEROS, with the number of zeros in the folder's README.md.
import sherpa from "sherpa-onnx";

const [, , folder, wav, zeros] = process.argv;
const [encoder, decoder, joiner] = ["encoder", "decoder", "joiner"].map((name) => `${folder}/${name}.onnx`);
const recognizer = sherpa.createOnlineRecognizer({
  featConfig: { sampleRate: 16000, featureDim: 80 },
  modelConfig: { transducer: { encoder, decoder, joiner }, tokens: `${folder}/tokens.txt`, debug: 0 },
});
const stream = recognizer.createStream();
const { samples, sampleRate } = sherpa.readWave(wav);
stream.acceptWaveform(sampleRate, samples);
stream.acceptWaveform(16000, new Float32Array(Number(zeros))); // which complete the last chunk
while (recognizer.isReady(stream)) recognizer.decode(stream);
console.log(recognizer.getResult(stream).text);
