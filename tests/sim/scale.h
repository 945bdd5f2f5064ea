// How what a coordinator does grows with the number of its nodes.
#pragma once

namespace ddprun::sim {

// Joins and restarts 1,000, 3,000 and 10,000 nodes and prints a table. The exit code.
int RunScale();

}  // namespace ddprun::sim
