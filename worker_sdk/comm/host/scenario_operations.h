// What the scenarios of host_communicator_test have in common: operations whose results every rank can compute.
#pragma once

#include <cstddef>
#include <memory>
#include <random>
#include <vector>

#include "ddprun/communicator.h"
#include "ddprun/status.h"
#include "ddprun/tensor.h"
#include "worker_sdk/comm/call.h"
#include "worker_sdk/comm/host/rank_scenarios.h"
#include "worker_sdk/comm/testing/rank_processes.h"

namespace ddprun {

// An operation that was started, and its expected result.
struct Started {
  Work work;
  std::vector<char> input, output, expected;
};

// Starts operation `index` on inputs that the index determines. `n`: elements of each rank's part of the operation.
std::unique_ptr<Started> StartOperation(Communicator& comm, internal::OpKind kind, DType dtype, ReduceOp op,
                                        int root, size_t n, bool in_place, int index);
// Starts operation `index`, of a kind and size that `random` determines.
std::unique_ptr<Started> StartRandom(Communicator& comm, int index, std::mt19937& random);
// Waits for the operation and compares its result bit by bit.
Status Finish(Started& started);

// Runs all-reduces until one fails.
int ReduceForever(const RankProcess& self, Communicator& comm);

// See the definition.
int OperateOnOverlappingMemory(const RankProcess& self, Communicator& comm);

// The scenarios of groups: see the definitions.
int OperateInGroups(const RankProcess& self, Communicator& world);
int OperateOnBuffers(const RankProcess& self, Communicator& world);
int AllocateDifferently(const RankProcess& self, Communicator& world);
int AllocateTooMuch(const RankProcess& self, Communicator& world);
int AllocateWithoutAddressSpace(const RankProcess& self, Communicator& world);
int SplitAfterALeaver(const RankProcess& self, Communicator world);
int ConnectBesideAHostilePeer(const RankProcess& self);
int SplitForever(const RankProcess& self, Communicator& world);
int ReduceInAGroupForever(const RankProcess& self, Communicator& world);

}  // namespace ddprun
