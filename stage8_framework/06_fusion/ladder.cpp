// The versions of the ladder that fuse: who runs the programs, and what these may end with.
#include "stage8_framework/06_fusion/fusion.h"

namespace fusion {

void fuse_interpreted(Graph& graph) { graph = fuse(graph, {Fusion::By::interpreted, false}); }
void fuse_compiled(Graph& graph) { graph = fuse(graph, {Fusion::By::compiled, false}); }
void fuse_with_reduction(Graph& graph) { graph = fuse(graph, {Fusion::By::compiled, true}); }

}  // namespace fusion
