// What the ranks of host_communicator_test do, each in a process of its own.
#pragma once

#include "base/time.h"
#include "worker_sdk/comm/testing/rank_processes.h"

namespace ddprun {

// Exit codes; 0: all went as it should.
inline constexpr int kWrongResult = 3;
inline constexpr int kEnded = 42;  // the scenario's error came; its text is in the store

// Key of the store: set once the first node has left, for scenario "late".
inline constexpr char kFirstNodeGone[] = "first-node-gone";

// A deadline that a test never reaches.
inline TimePoint Soon() { return std::chrono::steady_clock::now() + seconds(60); }

// Runs the scenario that self.args[0] names; returns the exit code of the process.
int RunRank(const RankProcess& self);

}  // namespace ddprun
