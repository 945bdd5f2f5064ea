// Measures how a coordinator's work grows with the number of nodes.
#pragma once

namespace ddprun::sim {

// Joins and restarts 1,000, 3,000 and 10,000 nodes and prints a table. Returns the exit code.
int RunScale();

}  // namespace ddprun::sim
