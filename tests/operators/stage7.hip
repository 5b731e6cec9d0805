// The operators of stage 7.
#include "tests/operators/operators.h"

namespace operators {

std::vector<Operator> stage7() { return {}; }

}  // namespace operators
