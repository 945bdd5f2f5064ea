// Encodes and parses snapshots. A snapshot contains everything needed to continue training from a step.
// docs/snapshot_format.md describes the format.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "ddprun/status.h"
#include "ddprun/tensor.h"

namespace ddprun {

struct TensorView {
  std::string name;  // unique in the snapshot
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  std::string_view bytes;  // little-endian elements, row-major; not owned
};

// Returns a view of `elems`, which must outlive the view.
TensorView ViewOf(std::string name, std::vector<int64_t> shape, std::span<const float> elems);
TensorView ViewOf(std::string name, std::vector<int64_t> shape, std::span<const double> elems);

struct Snapshot {
  int64_t step = 0;    // number of optimizer updates done
  int world_size = 1;  // world size of the round that wrote the snapshot; any number of workers may load it
  Round round{};       // the round that wrote the snapshot
  // Values chosen by the program, such as the shape of its model and the sampler's state.
  std::map<std::string, std::string> attributes{};
  std::vector<TensorView> tensors{};

  // Returns the attribute's value as an integer.
  //   Errors: kNotFound: there is no such attribute; kDataLoss: the value is not an integer. The message
  //           contains the name.
  [[nodiscard]] StatusOr<int64_t> Integer(const std::string& attribute) const;
  // Copies the tensor's elements to `elems`.
  //   Errors: kNotFound: there is no such tensor; kFailedPrecondition: its dtype or number of elements
  //           differs from that of `elems`.
  Status Copy(std::string_view tensor, std::span<float> elems) const;
  Status Copy(std::string_view tensor, std::span<double> elems) const;
};

// Returns the beginning of a snapshot file. The tensors' bytes follow in the file, in order.
//   REQUIRES: the size of each view matches its shape and dtype.
std::string EncodeSnapshotHead(const Snapshot& snapshot);

struct ParsedSnapshot {
  Snapshot snapshot;  // its tensors are views of the parsed bytes
  // Identifies the snapshot: the hexadecimal digest of the head, which contains the tensors' digests.
  std::string sha256;
};

// Parses a whole file and verifies every byte.
//   Errors: kDataLoss: the file is torn or damaged. The message names the part.
//           kUnimplemented: the file has a later version or an unknown dtype.
StatusOr<ParsedSnapshot> ParseSnapshot(std::string_view file);

}  // namespace ddprun
