// The operators of stage 5.
#include "tests/operators/operators.h"

namespace operators {

std::vector<Operator> stage5() { return {}; }

}  // namespace operators
