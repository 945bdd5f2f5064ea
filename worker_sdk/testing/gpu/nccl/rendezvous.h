// How the ranks of a communicator find each other: the unique id has the address of a thread in the process that created it.
// The thread sends a table of all ranks to each rank, after all have arrived.
#pragma once

#include <cstdint>
#include <vector>

#include "worker_sdk/testing/gpu/nccl/sockets.h"

namespace ddprun::stand_in {

// The content of an ncclUniqueId.
struct UniqueId {
  uint64_t magic;
  uint64_t cookie;  // random
  Address address;  // of the thread
};

// What ranks know about each other.
struct Member {
  Address address;   // where it accepts connections of other ranks
  uint64_t process;  // random, one for each process
  int32_t device;
};

struct Membership {
  uint64_t seed = 0;  // the same on all ranks, another one for each communicator
  std::vector<Member> members;
};

// Starts the thread. It ends when all ranks have the table.
UniqueId StartRendezvous();
// False: the bytes are not those of an id that StartRendezvous returned.
bool IsValid(const UniqueId& id);

// Waits for all ranks. kDifferent does not occur: if two ranks say different numbers of ranks, they wait for ever.
Outcome Join(const UniqueId& id, int rank, int num_ranks, const Member& self, const Cancel& cancel,
             Membership& all);

// Random, one for each process.
uint64_t IdOfProcess();

}  // namespace ddprun::stand_in
