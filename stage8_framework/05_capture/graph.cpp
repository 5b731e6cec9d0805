#include "stage8_framework/05_capture/graph.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <system_error>

namespace framework {

namespace {

// "%4 f32 (64,10)", "%4+640 i32 (64)" where it begins with another element than the first.
std::string text_of(const GraphTensor& tensor) {
  if (tensor.place < 0) return "none";
  const std::int64_t offset = tensor.layout.offset;
  return "%" + std::to_string(tensor.place) + (offset == 0 ? "" : "+" + std::to_string(offset)) +
         " " + name_of(tensor.dtype) + " " + tensor.layout.shape.text();
}

std::string list_of(const GraphTensor* tensors, int count) {
  std::string list;
  for (int i = 0; i < count; ++i) list += (i == 0 ? "" : ", ") + text_of(tensors[i]);
  return list;
}

// A word of the shell, whatever is in it.
std::string quoted(const std::string& text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

// What Graphviz draws: a box for each call, an arrow from whoever wrote a place last to whoever
// reads it.
std::string dot_of(const GraphRecord& record) {
  std::string text = "digraph {\n  node [shape=box fontname=\"sans-serif\" fontsize=10];\n";
  std::vector<int> writer(record.places.size(), -1);
  for (size_t i = 0; i < record.calls.size(); ++i) {
    const GraphCall& call = record.calls[i];
    const std::string node = "c" + std::to_string(i);
    text += "  " + node + " [label=\"" + call.op->name + "\\n" +
            list_of(call.outputs, call.output_count) + "\"];\n";
    const auto arrow = [&](const GraphTensor& from) {
      if (from.place < 0) return;
      const int by = writer[static_cast<size_t>(from.place)];
      if (by >= 0) text += "  c" + std::to_string(by) + " -> " + node + ";\n";
    };
    for (int k = 0; k < call.input_count; ++k) arrow(call.inputs[k]);
    for (int k = 0; k < call.output_count; ++k) {
      if (call.op->updates) arrow(call.outputs[k]);
      writer[static_cast<size_t>(call.outputs[k].place)] = static_cast<int>(i);
    }
  }
  return text + "}\n";
}

bool is_fused(const GraphRecord& record) {
  return std::any_of(record.calls.begin(), record.calls.end(),
                     [](const GraphCall& call) { return call.fused != nullptr; });
}

}  // namespace

std::string described(const GraphRecord& record, size_t call) {
  const GraphCall& at = record.calls[call];
  std::string text = std::to_string(call) + "  " + list_of(at.outputs, at.output_count) + " = " +
                     at.op->name + "(" + list_of(at.inputs, at.input_count) + ")";
  if (at.fused != nullptr) return text + "  " + at.fused->text();
  const std::string names = at.op->attributes;
  size_t begin = 0;
  for (int i = 0; begin < names.size(); ++i) {
    const size_t end = std::min(names.find(' ', begin), names.size());
    char number[32];
    std::snprintf(number, sizeof number, "%g", at.attributes[i]);
    text += " " + names.substr(begin, end - begin) + "=" + number;
    begin = end + 1;
  }
  return text;
}

std::vector<Call> calls_on(const GraphRecord& record, const Storages& storages) {
  const auto placed = [&](const GraphTensor& tensor) {
    return tensor.place < 0 ? Tensor()
                            : Tensor::of(storages[static_cast<size_t>(tensor.place)], tensor.layout,
                                         tensor.dtype);
  };
  std::vector<Call> calls(record.calls.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    const GraphCall& from = record.calls[i];
    Call& call = calls[i];
    call.op = from.op, call.input_count = from.input_count, call.output_count = from.output_count;
    std::copy(from.attributes, from.attributes + kMaxAttributes, call.attributes);
    for (int k = 0; k < from.input_count; ++k) call.inputs[k] = placed(from.inputs[k]);
    for (int k = 0; k < from.output_count; ++k) call.outputs[k] = placed(from.outputs[k]);
  }
  return calls;
}

const Op kFused = {"fused",          "",     "", 0, nullptr, nullptr, nullptr, Promise::fixed,
                   Magnitude::terms, nullptr};

// ---- Graph --------------------------------------------------------------------------------------

const GraphRecord& Graph::record() const {
  static const GraphRecord kNothing;
  return record_ == nullptr ? kNothing : *record_;
}

void Graph::replay() {
  if (call_watcher != nullptr)
    throw std::runtime_error(
        "capture: a graph is replayed meanwhile, whose calls are not run anew");
  if (size() == 0) return;
  if (replay_ == nullptr)
    replay_ =
        is_fused(*record_) ? replay_planned(*record_, plan_by_size) : replay_recorded(*record_);
  replay_->run();
}

Graph& Graph::plan(Planner planner) {
  if (size() > 0) replay_ = replay_planned(*record_, planner);
  return *this;
}

Graph& Graph::instantiate(Planner planner) {
  if (size() > 0) replay_ = replay_instance(*record_, planner);
  return *this;
}

std::vector<Interval> Graph::intervals() const { return intervals_of(record()); }

std::string Graph::text() const {
  std::string lines;
  for (size_t i = 0; i < size(); ++i) lines += described(*record_, i) + "\n";
  return lines;
}

bool Graph::draw(const std::string& svg_file) const {
  const std::string source = svg_file + ".dot";
  std::ofstream file(source);
  const bool is_written = static_cast<bool>(file << dot_of(record()) << std::flush);
  file.close();
  const std::string command =
      "dot -Tsvg -o " + quoted(svg_file) + " " + quoted(source) + " >/dev/null 2>&1";
  const bool is_drawn = is_written && std::system(command.c_str()) == 0;
  if (is_written) std::remove(source.c_str());
  return is_drawn;
}

}  // namespace framework
