// A graph as it was recorded: an operation is a kernel.
//
//   gelu((y * z + y) / 2) * z + y
//
//   mul     reads y, z     writes t0            five results go to memory and come back,
//   add     reads t0, y    writes t1            and nobody but the next call wants them:
//   div     reads t1       writes t2            16 arrays pass through memory
//   gelu    reads t2       writes t3            where y, z and the result are 3
//   mul     reads t3, z    writes t4
//   add     reads t4, y    writes the result
//
// Idea:  each kernel is written once, by hand, and serves every program.
// Costs: an operation on elements takes as long as its arrays take through memory, whatever it
//        computes. A small one takes as long as a launch.
#include "stage8_framework/06_fusion/fusion.h"

namespace fusion {

void fuse_separate(Graph& graph) { graph.plan(); }

}  // namespace fusion
