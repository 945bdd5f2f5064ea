// Makes PyTorch's flight recorder write down the last collective operations of workers.
#pragma once

#include <string>
#include <vector>

#include "base/ids.h"

namespace ddprun {

// PyTorch reads TORCH_NCCL_DEBUG_INFO_PIPE_FILE: each rank that uses NCCL creates the pipe STEM + RANK + ".pipe", and writes a file when it
// finds anything in it. Writes to the pipes of these ranks. Does not block. Returns one line for users, which names the files or what
// could not be done, and is the same on all nodes if the reasons are; empty if the environment of this process does not have the variable.
std::string AskFlightRecorders(const std::vector<Rank>& ranks);

}  // namespace ddprun
