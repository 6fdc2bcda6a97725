// Stream a wav file (16 kHz, mono, 16 bits) with ONNX Runtime's C++ API, without asrkit.
//
// asrkit export --model small-en-alnum --format onnx --what model --output model.onnx
// g++ -std=c++20 -O2 stream_onnx.cpp -o stream_onnx $(pkg-config --cflags --libs libonnxruntime)
// ./stream_onnx model.onnx a.wav

#include <algorithm>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>
#include <onnxruntime_cxx_api.h>

struct Stream {  // a stream of samples; any number of streams share a session
  Ort::Session& session;
  Ort::MemoryInfo memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  size_t past = 0, chunk = 0, label = 0;  // samples, samples, label of the last frame
  int64_t ahead = 0;                      // samples in the past without a frame so far
  std::vector<std::string> symbols{""};   // label 0 is the blank
  std::map<std::string, Ort::Value> state;
  std::vector<float> waiting;
  std::string text;
  explicit Stream(Ort::Session& session) : session(session) {
    Ort::AllocatorWithDefaultOptions allocator;
    auto about = [&, metadata = session.GetModelMetadata()](const char* key) -> std::string {
      return metadata.LookupCustomMetadataMapAllocated(key, allocator).get();
    };
    if (about("samples_before") != "0" || about("samples_after") != "0")
      throw std::runtime_error("this model needs samples before and after a stream: docs/export.md");
    chunk = std::stoul(about("chunk_length"));
    ahead = std::stol(about("samples_ahead"));
    std::istringstream lines(about("symbols"));
    for (std::string symbol; std::getline(lines, symbol);)  // the end of a turn is not text
      symbols.push_back(symbol == "<eou>" || symbol == "<EOU>" ? "" : symbol);
    for (size_t i = 0; i < session.GetInputCount(); ++i) {
      std::string name = session.GetInputNameAllocated(i, allocator).get();
      auto type = session.GetInputTypeInfo(i);
      auto shape = type.GetTensorTypeAndShapeInfo().GetShape();
      if (name == "past") past = shape[1];
      if (!name.starts_with("state_")) continue;
      shape[0] = 1;  // stream
      auto kind = type.GetTensorTypeAndShapeInfo().GetElementType();
      auto part = Ort::Value::CreateTensor(allocator, shape.data(), shape.size(), kind);
      size_t size = kind == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64 ? 8 : 4;
      size *= part.GetTensorTypeAndShapeInfo().GetElementCount();
      std::fill_n(static_cast<char*>(part.GetTensorMutableRawData()), size, 0);
      state.emplace(name, std::move(part));
    }
  }

  void accept(const int16_t* samples, size_t count) {  // any number of samples
    for (size_t i = 0; i < count; ++i) waiting.push_back(samples[i] / 32768.0f);
    for (; waiting.size() >= past + chunk; waiting.erase(waiting.begin(), waiting.begin() + chunk))
      step(chunk);  // the last samples are the past of the next step
  }

  std::string finish() {
    for (int64_t rest = int64_t(waiting.size()) - int64_t(past); rest > -ahead; rest -= chunk) {
      waiting.resize(past + chunk);  // pad with zeros
      step(rest);
      waiting.erase(waiting.begin(), waiting.begin() + chunk);
    }
    return text.substr(0, text.find_last_not_of(' ') + 1);
  }

  void step(int64_t length) {  // the past and a chunk; `length` real samples follow the past
    auto tensor = [&](auto* data, size_t size, std::vector<int64_t> shape) {
      return Ort::Value::CreateTensor(memory, data, size, shape.data(), shape.size());
    };
    Ort::IoBinding io(session);
    io.BindInput("past", tensor(waiting.data(), past, {1, int64_t(past)}));
    io.BindInput("samples", tensor(waiting.data() + past, chunk, {1, int64_t(chunk)}));
    io.BindInput("lengths", tensor(&length, 1, {1}));
    for (auto& [name, part] : state) io.BindInput(name.c_str(), part);
    for (auto name : {"log_probs", "frames"}) io.BindOutput(name, memory);
    for (auto& [name, part] : state) io.BindOutput(("new_" + name).c_str(), memory);
    session.Run({}, io);
    auto outputs = io.GetOutputValues();
    for (auto next = outputs.begin() + 2; auto& [name, part] : state) part = std::move(*next++);
    const float* row = outputs[0].GetTensorData<float>();
    for (int64_t i = 0; i < *outputs[1].GetTensorData<int64_t>(); ++i, row += symbols.size()) {
      size_t now = std::max_element(row, row + symbols.size()) - row;
      bool spaced = text.empty() || text.back() == ' ';
      if (now != label) text += symbols[now].substr(spaced && symbols[now][0] == ' ');
      label = now;
    }
  }
};

// Skips to the samples of a wav file; returns a description of an unsupported file, or "".
std::string to_samples(std::istream& wav) {
  auto number = [&wav](int bytes) {
    uint32_t value = 0;
    for (int i = 0; i < bytes; ++i) value |= uint32_t(wav.get() & 255) << 8 * i;
    return value;
  };
  std::string tag(4, ' '), found = "not a wav file";
  if (!wav.read(tag.data(), 4) || tag != "RIFF") return found;
  wav.ignore(8);  // the size, and WAVE
  while (wav.read(tag.data(), 4)) {
    uint32_t size = number(4);
    if (tag == "fmt " && size >= 16) {
      uint32_t kind = number(2), channels = number(2), rate = number(4);
      wav.ignore(6);  // bytes a second and a frame
      uint32_t bits = number(2);
      found = std::to_string(rate) + " Hz, " + std::to_string(channels) + " channels, " +
              std::to_string(bits) + " bits" + (kind == 1 || kind == 0xfffe ? "" : ", not whole numbers");
      wav.ignore(size - 16 + size % 2);
    } else if (tag == "data") {
      return found == "16000 Hz, 1 channels, 16 bits" ? "" : found;
    } else {
      wav.ignore(size + size % 2);
    }
  }
  return found;
}

int main(int, char** arguments) {
  std::ifstream wav(arguments[2], std::ios::binary);
  if (std::string found = to_samples(wav); !found.empty()) {
    std::cerr << arguments[2] << ": must have 16000 Hz, 1 channel, 16 bits; it is " << found << "\n";
    return 2;
  }
  Ort::Env environment;
  Ort::Session session(environment, arguments[1], Ort::SessionOptions());
  Stream stream(session);
  int16_t packet[1600];  // 100 ms
  while (wav.read(reinterpret_cast<char*>(packet), sizeof packet).gcount() > 1) {
    stream.accept(packet, wav.gcount() / 2);
    std::cout << stream.text << "\r" << std::flush;
  }
  std::cout << stream.finish() << std::endl;
}
