// Encodes and parses snapshots. A snapshot contains everything needed to continue training from a step.
// docs/snapshot_format.md describes the format.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/ids.h"

namespace ddprun {

enum class DType { kF32, kF64 };

struct TensorView {
  std::string name;  // unique in the snapshot
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  absl::string_view bytes;  // little-endian elements, row-major; not owned
};

// Returns a view of `elems`, which must outlive the view.
TensorView ViewOf(std::string name, std::vector<int64_t> shape, absl::Span<const float> elems);
TensorView ViewOf(std::string name, std::vector<int64_t> shape, absl::Span<const double> elems);

struct Snapshot {
  int64_t step = 0;    // optimizer updates done
  int world_size = 1;  // of the round that wrote the snapshot; any number of workers may load it
  Round round{};       // the round that wrote it
  // Values chosen by the program, such as the shape of its model and the sampler's state.
  std::map<std::string, std::string> attributes{};
  std::vector<TensorView> tensors{};

  // Returns the attribute's value as an integer.
  //   Errors: kNotFound, with the name: there is no such attribute; kDataLoss: its value is not an integer.
  [[nodiscard]] absl::StatusOr<int64_t> Integer(const std::string& attribute) const;
  // Copies the tensor's elements to `elems`.
  //   Errors: kNotFound: there is no such tensor; kFailedPrecondition: its dtype or number of elements
  //           differs from that of `elems`.
  absl::Status Copy(absl::string_view tensor, absl::Span<float> elems) const;
  absl::Status Copy(absl::string_view tensor, absl::Span<double> elems) const;
};

// Returns the beginning of a snapshot file. The tensors' bytes follow it in order.
//   REQUIRES: the size of each view matches its shape and dtype.
std::string EncodeSnapshotHead(const Snapshot& snapshot);

struct ParsedSnapshot {
  Snapshot snapshot;  // its tensors are views of the parsed bytes
  // Identifies the snapshot: the hexadecimal digest of the head, which contains the tensors' digests.
  std::string sha256;
};

// Parses a whole file and verifies every byte.
//   Errors: kDataLoss: the file is torn or damaged; the message says where.
//           kUnimplemented: the file has a later version or an unknown dtype.
absl::StatusOr<ParsedSnapshot> ParseSnapshot(absl::string_view file);

}  // namespace ddprun
