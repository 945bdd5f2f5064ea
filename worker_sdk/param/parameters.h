// Checks of parameters, and what ranks compare of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ddprun/parameters.h"
#include "worker_sdk/param/facts.h"

namespace ddprun {

// What is wrong with the parameters, with the name of the parameter; empty if nothing is.
//   gpu: where they may be, besides the host; the host if they may be nowhere else.
std::string FaultOf(const std::vector<Parameter>& parameters, const Device& gpu);
// What is wrong if the values are not all on one device; empty if they are.
std::string FaultOfDevices(const std::vector<Parameter>& parameters);

// "on GPU 1 instead of on GPU 0" if `device` is neither the host nor `gpu`; otherwise empty.
std::string FaultOfPlace(const Device& device, const Device& gpu);
// For a fact: what ranks must have in common, which is not the index of the GPU.
std::string DeviceFact(const Device& device);

// Appends what must be equal on all ranks.
void AppendFacts(const std::vector<Parameter>& parameters, std::vector<Fact>* facts);

// "[3, 4]".
std::string ShapeText(const std::vector<int64_t>& shape);

// True if elements of `dtype` are floating-point numbers.
bool IsFloatingPoint(DType dtype);

}  // namespace ddprun
