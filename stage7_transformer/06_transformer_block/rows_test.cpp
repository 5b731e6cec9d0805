// Neighbouring blocks in the launches of `rows`: one block's end and the next one's begin together.
#include <algorithm>
#include <memory>
#include <vector>

#include "stage7_transformer/06_transformer_block/blocks_for_tests.h"
#include "stage7_transformer/06_transformer_block/parts.h"
#include "stage7_transformer/06_transformer_block/rows.h"
#include "stage7_transformer/06_transformer_block/transformer_block.h"

namespace {

using namespace block_test;

// A block on the device, and what it makes. Its parameters begin `offset` floats behind a multiple
// of 16 bytes.
struct Block {
  Block(const Inputs& in, size_t offset)
      : y(in.x.size()), grad_x(in.x.size()), kept(in.shape, kBest), workspace(in.shape) {
    for (const std::vector<float>& parameter : in.parameters) {
      values.push_back(std::make_unique<Guarded<float>>(parameter, offset));
      gradients.push_back(std::make_unique<DeviceBuffer<float>>(parameter.size()));
      gradients.back()->poison();
      from.push_back(values.back()->data()), to.push_back(gradients.back()->data());
    }
    parameters = tensors_of<const float*>(from);
    for (DeviceBuffer<float>* buffer :
         {&y, &grad_x, &kept.norm1, &kept.qkv, &kept.attended, &kept.h, &kept.norm2, &kept.sums,
          &kept.hidden, &workspace.grad_hidden, &workspace.grad_h, &workspace.grad_attended,
          &workspace.grad_qkv, &workspace.norm_parts})
      buffer->poison();
  }
  Gradients wanted() const { return tensors_of<float*>(to); }

  std::vector<std::unique_ptr<Guarded<float>>> values;
  std::vector<std::unique_ptr<DeviceBuffer<float>>> gradients;
  std::vector<const float*> from;
  std::vector<float*> to;
  Parameters parameters;
  DeviceBuffer<float> y, grad_x;
  SavedActivations kept;
  Workspace workspace;
};

// All that two blocks, one behind the other, have made.
std::vector<std::vector<float>> results(const Block& one, const Block& two) {
  HIP_CHECK(hipDeviceSynchronize());
  std::vector<std::vector<float>> all;
  for (const Block* block : {&one, &two}) {
    const SavedActivations& kept = block->kept;
    const Workspace& w = block->workspace;
    for (const DeviceBuffer<float>* made :
         {&block->y, &block->grad_x, &kept.norm1, &kept.qkv, &kept.attended, &kept.h, &kept.norm2,
          &kept.sums, &kept.hidden, &w.grad_hidden, &w.grad_h, &w.grad_attended, &w.grad_qkv})
      all.push_back(made->to_host());
    for (const size_t norm : {0, 1, 6, 7}) all.push_back(block->gradients[norm]->to_host());
  }
  return all;
}

}  // namespace

TEST_CASE("rows: the end of a block and the begin of the next, in one launch, have the same bits") {
  // A piece of fc's sums and several; channels that are no multiple of 4.
  for (const Shape& shape : {Shape{2, 19, 16, 2}, {1, 33, 64, 4}, {3, 7, 43, 1}}) {
    REQUIRE(is_in_rows(shape));
    for (const size_t offset : {0, 1, 2}) {  // 1: the first block's parameters; 2: the second's
      CAPTURE(shape.T, shape.C, offset);
      const Inputs in(shape);
      Inputs other = in;
      for (size_t k = 0; k < kTensors; ++k)
        std::reverse(other.parameters[k].begin(), other.parameters[k].end());
      const DeviceBuffer<float> x(in.x), grad_y(in.grad_y);
      const auto run = [&](auto&& use) {
        Block one(in, offset == 1 ? 1 : 0), two(other, offset == 2 ? 1 : 0);
        use(one, two);
        return results(one, two);
      };
      const auto alone = run([&](Block& one, Block& two) {
        forward_in_rows(one.y.data(), x.data(), one.parameters, shape, one.kept, nullptr);
        forward_in_rows(two.y.data(), one.y.data(), two.parameters, shape, two.kept, nullptr);
        backward_in_rows(two.wanted(), two.grad_x.data(), grad_y.data(), one.y.data(),
                         two.parameters, shape, two.kept, two.workspace, nullptr);
        backward_in_rows(one.wanted(), one.grad_x.data(), two.grad_x.data(), x.data(),
                         one.parameters, shape, one.kept, one.workspace, nullptr);
      });
      const auto together = run([&](Block& one, Block& two) {
        const BlockPass first{one.parameters, one.kept, x.data(), one.y.data()};
        const BlockPass second{two.parameters, two.kept, one.y.data(), two.y.data()};
        launch_rows(nullptr, &first, shape, nullptr);
        attend_flash(one.kept, shape, nullptr);
        launch_rows(&first, &second, shape, nullptr);
        attend_flash(two.kept, shape, nullptr);
        launch_rows(&second, nullptr, shape, nullptr);

        const BlockGradient behind{two.parameters, two.kept,      two.workspace,
                                   one.y.data(),   grad_y.data(), two.grad_x.data()};
        const BlockGradient before{one.parameters, one.kept,          one.workspace,
                                   x.data(),       two.grad_x.data(), one.grad_x.data()};
        launch_rows_backward(nullptr, &behind, shape, nullptr);
        attend_backward_in_rows(two.kept, two.workspace, shape, nullptr);
        launch_rows_backward(&behind, &before, shape, nullptr);
        attend_backward_in_rows(one.kept, one.workspace, shape, nullptr);
        launch_rows_backward(&before, nullptr, shape, nullptr);
        norm_gradients_of_rows(one.wanted(), shape, one.workspace, nullptr);
        norm_gradients_of_rows(two.wanted(), shape, two.workspace, nullptr);
      });
      for (size_t k = 0; k < alone.size(); ++k) {
        CAPTURE(k);
        REQUIRE(same_bits(alone[k], together[k]));
      }
    }
  }
}
