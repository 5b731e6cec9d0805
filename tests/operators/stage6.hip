// The operators of stage 6.
#include "tests/operators/operators.h"

namespace operators {

std::vector<Operator> stage6() { return {}; }

}  // namespace operators
