// Where gradients are: buckets are consecutive parts of one array for each type. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "ddprun/parameters.h"
#include "ddprun/tensor.h"

namespace ddprun {

// Buckets in the order in which they are reduced, each a list of parameters in the order in which their gradients become
// ready. All gradients of a bucket have the same type.
using BucketLists = std::vector<std::vector<size_t>>;

// Divides the parameters into buckets. `order`: all parameters, in the order in which their gradients become ready.
// `plan`: divides parameters that have the same type, and returns the number of parameters in each bucket. A bucket comes
// after those whose last gradient is ready earlier.
BucketLists DivideByType(std::span<const Parameter> parameters, std::span<const size_t> order,
                         const std::function<std::vector<size_t>(std::span<const size_t>)>& plan);

// As numbers, two for each parameter, to send them to other ranks; and back: nullopt if the numbers are not those of
// buckets for `parameters`.
std::vector<int64_t> Encode(const BucketLists& buckets);
std::optional<BucketLists> Decode(std::span<const int64_t> numbers, std::span<const Parameter> parameters);

// The place of a gradient, in elements of the array of its type.
struct Slot {
  int64_t begin = 0;
  int64_t count = 0;      // of the gradient; `extra` elements follow, and then zeros
  int64_t allocated = 0;  // including these
  size_t bucket = 0;
  size_t position = 0;  // in the order of the buckets
};

struct Layout {
  struct Bucket {
    DType dtype = DType::kFloat32;
    int64_t begin = 0;
    int64_t count = 0;
    std::vector<size_t> parameters;
  };
  std::vector<Bucket> buckets;
  std::vector<Slot> slots;  // by parameter
  std::array<int64_t, 8> totals =
      {};  // elements of all buckets, by DType; do not depend on the division into buckets
};

// Every gradient starts at a multiple of 64 bytes, whatever bucket it is in: a kernel that writes gradients may give other
// bits for another alignment. `extra`: elements after each gradient that are reduced with it.
Layout LayOut(std::span<const Parameter> parameters, const BucketLists& buckets, int64_t extra);

}  // namespace ddprun
