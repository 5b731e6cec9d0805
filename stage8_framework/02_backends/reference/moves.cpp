// Elements that go somewhere else and stay what they are, apart from their type.
#include <limits>

#include "stage8_framework/02_backends/reference/operations.h"

namespace reference {
namespace {

void copy(const Arguments& arguments) {
  const Numbers x = arguments.in(0), y = arguments.out(0);
  for (Integer n = 0; n < y.size(); ++n) y[n].convert_from(x[n]);
}

// y = `value` everywhere.
void fill(const Arguments& arguments) {
  const Numbers y = arguments.out(0);
  for (Integer n = 0; n < y.size(); ++n) y[n] = arguments.attribute(0);
}

bool is_row(const Numbers& table, double id) {
  return id >= 0 && id < static_cast<double>(table.extent(0));
}

// y[..., rest] = a[ids[...], rest]; where there is no such row NaN, or 0 in a type that has none.
void gather(const Arguments& arguments) {
  const Numbers a = arguments.in(0), ids = arguments.in(1), y = arguments.out(0);
  const int axes = a.rank() - 1;
  for (Integer n = 0; n < ids.size(); ++n) {
    const Numbers row = y.part(n, axes);
    const bool is_there = is_row(a, ids[n]);
    for (Integer i = 0; i < row.size(); ++i)
      if (is_there)
        row[i].convert_from(a.part(static_cast<Integer>(ids[n]), axes)[i]);
      else
        row[i] = is_integer(y.type()) ? 0 : std::numeric_limits<double>::quiet_NaN();
  }
}

// y[..., c] = table[ids[...], c]; NaN where there is no such row.
void embedding(const Arguments& arguments) {
  const Numbers table = arguments.in(0), ids = arguments.in(1), y = arguments.out(0);
  for (Integer n = 0; n < ids.size(); ++n) {
    const Numbers row = y.part(n, 1);
    for (Integer c = 0; c < table.extent(1); ++c)
      row(c) = is_row(table, ids[n]) ? static_cast<double>(table(ids[n], c))
                                     : std::numeric_limits<double>::quiet_NaN();
  }
}

// grad_table[v, c] = sum of grad_y[..., c] where ids[...] = v.
void embedding_backward(const Arguments& arguments) {
  const Numbers grad_y = arguments.in(0), ids = arguments.in(1), grad_table = arguments.out(0);
  for (Integer v = 0; v < grad_table.extent(0); ++v)
    for (Integer c = 0; c < grad_table.extent(1); ++c) {
      double sum = 0;
      for (Integer n = 0; n < ids.size(); ++n)
        if (ids[n] == static_cast<double>(v)) sum += grad_y.part(n, 1)(c);
      grad_table(v, c) = sum;
    }
}

}  // namespace

std::vector<Operation> moves() {
  return {{"copy", copy},     {"cast", copy},           {"fill", fill},
          {"gather", gather}, {"embedding", embedding}, {"embedding_backward", embedding_backward}};
}

}  // namespace reference
