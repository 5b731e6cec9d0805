// The operators of stage 4.
#include "tests/operators/operators.h"

namespace operators {

std::vector<Operator> stage4() { return {}; }

}  // namespace operators
