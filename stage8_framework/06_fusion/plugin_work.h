// Programs in the hands of plug-ins: those of a graph are made together, so that their compiler is
// waited for once. Plain C++ that knows no device.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "stage8_framework/05_capture/graph.h"
#include "stage8_framework/06_fusion/program.h"

namespace fusion {

class PluginWork : public framework::FusedWork {
 public:
  // Takes what the plug-in has made.
  PluginWork(const framework::Seat& seat, std::string text, void* fused)
      : seat_(seat), text_(std::move(text)), fused_(fused) {}
  ~PluginWork() override { seat_.table->fused_destroy(seat_.state, fused_); }
  PluginWork(const PluginWork&) = delete;
  PluginWork& operator=(const PluginWork&) = delete;

  void queue(const CourseCall& call, void* stream) const override;
  std::string text() const override { return text_; }
  std::string note() const override { return seat_.table->fused_note(seat_.state, fused_); }
  size_t workspace() const { return seat_.table->fused_workspace(seat_.state, fused_); }

 private:
  const framework::Seat& seat_;
  std::string text_;
  void* fused_;
};

// The programs of a graph: first all are added, then they are made.
class PluginWorks {
 public:
  // Its number: of equal programs for one plug-in the same.
  size_t add(const framework::Seat& seat, const Program& program);
  // By what: as `kernel` of the table's fuse(). Where plug-ins can't do it, work(number) is nullptr
  // or, with `must_be_made`, std::runtime_error says why. Throws gpu::Error of the device.
  void make(std::int32_t kernel, bool must_be_made);
  const std::shared_ptr<const PluginWork>& work(size_t number) const {
    return wanted_[number].work;
  }

 private:
  struct Wanted {
    const framework::Seat* seat;
    Program program;
    std::shared_ptr<const PluginWork> work;
  };
  void make_of(const framework::Seat& seat, std::int32_t kernel, bool must_be_made);

  std::vector<Wanted> wanted_;
  std::map<std::string, size_t> numbers_;
};

}  // namespace fusion
