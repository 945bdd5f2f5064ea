// Checks of parameters, and what ranks compare of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ddprun/parameters.h"
#include "worker_sdk/param/facts.h"

namespace ddprun {

// What is wrong with the parameters, with the name of the parameter; empty if nothing is.
std::string FaultOf(const std::vector<Parameter>& parameters);

// Appends what must be equal on all ranks.
void AppendFacts(const std::vector<Parameter>& parameters, std::vector<Fact>* facts);

// "[3, 4]".
std::string ShapeText(const std::vector<int64_t>& shape);

// True if elements of `dtype` are floating-point numbers.
bool IsFloatingPoint(DType dtype);

// Copies the tensors from rank `root` to all ranks, in few operations: small tensors share one. Collective.
//   Shapes: equal on all ranks.
//   Errors: those of Work::Wait.
Status BroadcastTensors(Communicator comm, const std::vector<Tensor>& tensors, int root);

}  // namespace ddprun
