// Compares what must be equal on all ranks, such as the shapes of a model's parameters.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ddprun/communicator.h"
#include "ddprun/status.h"
#include "ddprun/time.h"

namespace ddprun {

struct Fact {
  std::string what;   // "the dtype of parameter head.weight"
  std::string value;  // "float32"
};

// Compares the facts of all ranks. Collective. One small all-gather if they are equal; at most two broadcasts and an
// all-gather more if they differ. `fault`: what is wrong with this rank's arguments; empty if nothing is. A rank whose
// arguments are invalid must call this function, too, because the other ranks would wait for it. `deadline`: of all
// operations together; nullopt: the communicator's timeout for each.
//   REQUIRES: facts with the same index have the same `what` on all ranks if all earlier facts are equal, except that
//             some ranks may have fewer facts.
//   Errors: kInvalidArgument: some rank has a fault, or the facts differ. The message is the same on all ranks: the fault
//           of the lowest rank that has one, or the first difference between rank 0 and another rank. The communicator
//           remains usable. Others: those of Work::Wait.
Status CompareFacts(Communicator comm, const std::vector<Fact>& facts, const std::string& fault,
                    std::optional<TimePoint> deadline = std::nullopt);

}  // namespace ddprun
