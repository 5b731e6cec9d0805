// Places of 32 bits: windows of all kinds, those that are left to others, and any alignment.
#include "stage6_cnn/03_maxpool/wide.h"

#include <vector>

#include "stage6_cnn/03_maxpool/pooling_for_tests.h"

using namespace maxpool_test;

namespace {

bool is_row_pairs_of_twos(const Problem& p) {
  return p.R == 2 && p.S == 2 && p.stride_h == 2 && p.stride_w == 2 && p.pad_h == 0 &&
         p.pad_w == 0 && p.W % 2 == 0;
}

// Both passes of x, exactly; nothing is written where a pass says that it is not its business.
void check_both(const Problem& p, const std::vector<float>& x, const Offsets& offsets) {
  CAPTURE(text_of(p), offsets.cells, offsets.outputs, offsets.argmax);
  const Routing in(p, x);
  Guarded<float> d_x(x, offsets.cells), d_y(in.y.size(), offsets.outputs);
  Guarded<float> d_grad_y(in.grad_y, offsets.outputs), d_grad_x(x.size(), offsets.cells);
  Guarded<WideIndex> d_argmax(in.y.size(), offsets.argmax);
  const bool is_taken = forward_wide(d_y.data(), d_argmax.data(), d_x.data(), p);
  const std::vector<WideIndex> want(in.argmax.begin(), in.argmax.end());
  if (is_taken) {
    REQUIRE(same_bits(d_y.to_host(), in.y));
    REQUIRE(d_argmax.to_host() == want);
  }
  Guarded<WideIndex> d_places(want, offsets.argmax);
  const bool goes_back = backward_wide(d_grad_x.data(), d_grad_y.data(), d_places.data(), p);
  if (goes_back)
    REQUIRE_OK(against({d_grad_x.to_host(), true}, backward_cpu(in.grad_y, in.argmax, p)));
  const bool is_aligned =
      offsets.cells % 2 == 0 && offsets.outputs % 2 == 0 && offsets.argmax % 2 == 0;
  if (!is_row_pairs_of_twos(p) || is_aligned)
    REQUIRE((is_taken == is_row_pairs_of_twos(p) && goes_back == is_taken));
  REQUIRE((d_x.intact() && d_y.intact() && d_argmax.intact() && d_places.intact()));
  REQUIRE((d_grad_x.intact() && d_grad_y.intact()));
}

}  // namespace

TEST_CASE("places of 32 bits, of every window, at any alignment") {
  for (const Problem& p : kProblems)
    for (const Offsets& offsets : kOffsets) check_both(p, few_values(cells_of(p), 1), offsets);
}

TEST_CASE("places of 32 bits, where a thread has several items") {
  for (const size_t W : {128, 126}) {
    const Problem p{8, 16, 64, W, 2, 2, 2, 2};
    check_both(p, few_values(cells_of(p), 10), {});
  }
}
