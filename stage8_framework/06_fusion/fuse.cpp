#include "stage8_framework/06_fusion/fuse.h"

#include <algorithm>
#include <cstring>
#include <list>
#include <memory>
#include <utility>

#include "stage8_framework/06_fusion/group.h"
#include "stage8_framework/06_fusion/plugin_work.h"

namespace fusion {

namespace {

using framework::GraphPlace;
using framework::GraphRecord;

bool is_fill(const GraphCall& call) { return std::strcmp(call.op->name, "fill") == 0; }

// Calls visit(place) for each place whose contents the call reads.
template <class Visit>
void for_each_read(const GraphCall& call, const Visit& visit) {
  for (int k = 0; k < call.input_count; ++k)
    if (call.inputs[k].place >= 0) visit(static_cast<size_t>(call.inputs[k].place));
  for (int k = 0; call.op->updates && k < call.output_count; ++k)
    visit(static_cast<size_t>(call.outputs[k].place));
}

constexpr auto kNone = static_cast<size_t>(-1);

// Calls in their new order, and what they may become.
struct Done {
  std::vector<GraphCall> calls;
  GraphCall as_one;
  size_t work;  // its number, or kNone
};

class Pass {
 public:
  Pass(const GraphRecord& record, const Fusion& how)
      : record_(record), how_(how), numbers_(record.places.size()) {
    last_read_.assign(record.places.size(), -1);
    for (size_t i = 0; i < record.calls.size(); ++i)
      for_each_read(record.calls[i],
                    [&](size_t place) { last_read_[place] = static_cast<std::int64_t>(i); });
  }

  std::shared_ptr<const GraphRecord> run() {
    for (now_ = 0; now_ < record_.calls.size(); ++now_) {
      const GraphCall& call = record_.calls[now_];
      if (call.seat->table->fuse == nullptr || !(waits(call) || ends_a_group(call))) {
        for (auto group = open_.begin(); group != open_.end();)
          group = meet(*group, call) ? close(group) : std::next(group);
        done_.push_back({{call}, {}, kNone});
      }
      note_numbers(call);
    }
    while (!open_.empty()) close(open_.begin());
    works_.make(static_cast<std::int32_t>(how_.by), how_.by == Fusion::By::compiled);
    return record_of(without_idle_fills(final_calls()));
  }

 private:
  bool is_held(int place) const {
    return record_.places[static_cast<size_t>(place)].storage != nullptr;
  }

  // Whether the order of the two counts.
  static bool meet(const Group& group, const GraphCall& call) {
    const auto inputs_end = call.inputs + call.input_count;
    const auto outputs_end = call.outputs + call.output_count;
    return std::any_of(call.inputs, inputs_end,
                       [&](const GraphTensor& t) { return group.writes(t.place); }) ||
           std::any_of(call.outputs, outputs_end, [&](const GraphTensor& t) {
             return group.writes(t.place) || group.reads(t.place);
           });
  }
  static bool shares_input(const Group& group, const GraphCall& call) {
    return std::any_of(call.inputs, call.inputs + call.input_count,
                       [&](const GraphTensor& t) { return group.reads(t.place); });
  }

  // Puts the call into a group. Groups that wait do not meet each other: whom the call meets is its
  // group, becomes a part of it, or is closed.
  bool waits(const GraphCall& call) {
    if (!Group::takes(call)) return false;
    auto home = open_.end();
    for (auto group = open_.begin(); group != open_.end();) {
      const int out = call.outputs[0].place;
      const bool is_overwritten = group->reads(out) || group->writes(out);
      if (!meet(*group, call) || home == group) {
        ++group;
      } else if (is_overwritten) {
        group = close(group);
      } else if (home == open_.end()) {
        home = group++;
      } else if (home->join(*group, numbers_)) {
        group = open_.erase(group);
      } else {
        group = close(group);
      }
    }
    if (home != open_.end() && home->join(call, numbers_)) return true;
    if (home != open_.end()) close(home);
    for (Group& group : open_)  // a second reader of what is read anyway
      if (shares_input(group, call) && group.join(call, numbers_)) return true;
    open_.emplace_back();
    if (open_.back().join(call, numbers_)) return true;
    open_.pop_back();
    return false;
  }

  // The call as the end of a group that makes what it reads.
  bool ends_a_group(const GraphCall& call) {
    if (!how_.reductions) return false;
    auto home = open_.end();
    for (auto group = open_.begin(); group != open_.end();) {
      if (!meet(*group, call))
        ++group;
      else if (home == open_.end() && group->writes(call.inputs[0].place))
        home = group++;
      else
        group = close(group);
    }
    if (home == open_.end() || !home->reduce(call)) return false;
    close(home, now_ + 1);
    return true;
  }

  std::list<Group>::iterator close(std::list<Group>::iterator group) { return close(group, now_); }
  // Queues what has waited, before call `next`: as one call, or as it was.
  std::list<Group>::iterator close(std::list<Group>::iterator group, size_t next) {
    const auto is_needed = [&](int place) {
      return is_held(place) ||
             last_read_[static_cast<size_t>(place)] >= static_cast<std::int64_t>(next);
    };
    const Group::Made made = group->made(is_needed);
    const bool is_one = group->calls().size() > 1 && !made.program.outputs.empty();
    done_.push_back(
        {group->calls(), made.call, is_one ? works_.add(*made.call.seat, made.program) : kNone});
    return open_.erase(group);
  }

  // Each group as one call where a plug-in has made work of it; else its calls stay as they are.
  std::vector<GraphCall> final_calls() const {
    std::vector<GraphCall> calls;
    for (const Done& done : done_) {
      const auto work = done.work == kNone ? nullptr : works_.work(done.work);
      if (work == nullptr) {
        calls.insert(calls.end(), done.calls.begin(), done.calls.end());
        continue;
      }
      calls.push_back(done.as_one);
      calls.back().fused = work, calls.back().workspace = work->workspace();
    }
    return calls;
  }

  // What is known of places behind the call.
  void note_numbers(const GraphCall& call) {
    for (int k = 0; k < call.output_count; ++k) {
      const GraphTensor& out = call.outputs[k];
      const size_t bytes = record_.places[static_cast<size_t>(out.place)].bytes;
      const bool is_whole = out.layout.is_contiguous() && out.dtype == Dtype::f32 &&
                            static_cast<size_t>(out.layout.elements()) * sizeof(float) == bytes;
      if (is_fill(call) && is_whole)
        numbers_.set(out.place, static_cast<float>(call.attributes[0]));
      else
        numbers_.forget(out.place);
    }
  }

  // Without the fills of places that nobody reads any more, as programs have the numbers.
  std::vector<GraphCall> without_idle_fills(const std::vector<GraphCall>& all) const {
    std::vector<bool> is_read(record_.places.size());
    for (const GraphCall& call : all)
      for_each_read(call, [&](size_t place) { is_read[place] = true; });
    std::vector<GraphCall> calls;
    for (const GraphCall& call : all) {
      const int place = call.outputs[0].place;
      const bool is_idle = is_fill(call) && !is_held(place) && !is_read[static_cast<size_t>(place)];
      if (!is_idle) calls.push_back(call);
    }
    return calls;
  }

  // The calls with the places that they use, which have new numbers.
  std::shared_ptr<const GraphRecord> record_of(std::vector<GraphCall> calls) const {
    auto fused = std::make_shared<GraphRecord>();
    fused->device = record_.device;
    std::vector<int> numbers(record_.places.size(), -1);
    const auto renumber = [&](GraphTensor& tensor) {
      if (tensor.place < 0) return;
      const auto place = static_cast<size_t>(tensor.place);
      if (numbers[place] < 0) {
        numbers[place] = static_cast<int>(fused->places.size());
        fused->places.push_back(record_.places[place]);
      }
      tensor.place = numbers[place];
    };
    for (GraphCall& call : calls) {
      for (int k = 0; k < call.input_count; ++k) renumber(call.inputs[k]);
      for (int k = 0; k < call.output_count; ++k) renumber(call.outputs[k]);
    }
    fused->calls = std::move(calls);
    return fused;
  }

  const GraphRecord& record_;
  const Fusion how_;
  size_t now_ = 0;                       // the call that is looked at
  std::vector<std::int64_t> last_read_;  // of each place
  Numbers numbers_;
  std::list<Group> open_;
  std::vector<Done> done_;
  PluginWorks works_;
};

}  // namespace

Graph fuse(const Graph& graph, const Fusion& how) {
  if (graph.size() == 0) return Graph();
  return Graph(Pass(graph.record(), how).run());
}

std::vector<std::string> notes_of(const Graph& graph) {
  std::vector<std::string> notes;
  for (const GraphCall& call : graph.record().calls)
    if (call.fused != nullptr &&
        std::find(notes.begin(), notes.end(), call.fused->note()) == notes.end())
      notes.push_back(call.fused->note());
  return notes;
}

}  // namespace fusion
