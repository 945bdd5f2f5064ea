// A snapshot as bytes: everything needed to go on from a step. docs/snapshot_format.md describes the format.
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

// A view of `elems`, which must live as long as it is used.
TensorView ViewOf(std::string name, std::vector<int64_t> shape, absl::Span<const float> elems);
TensorView ViewOf(std::string name, std::vector<int64_t> shape, absl::Span<const double> elems);

struct Snapshot {
  int64_t step = 0;    // optimizer updates done
  int world_size = 1;  // workers of the round that wrote it; it is loaded by any number
  Round round{};       // the round that wrote it
  // What else the program needs, as it likes: the shape of its model, the sampler's state.
  std::map<std::string, std::string> attributes{};
  std::vector<TensorView> tensors{};

  // The attribute as a whole number.
  //   Errors: kNotFound naming the key; kDataLoss: it is no number.
  [[nodiscard]] absl::StatusOr<int64_t> Integer(const std::string& attribute) const;
  // Copies the tensor's elements.
  //   Errors: kNotFound: there is no such tensor; kFailedPrecondition: it has another dtype, or not as many
  //           elements as `elems`.
  absl::Status Copy(absl::string_view tensor, absl::Span<float> elems) const;
  absl::Status Copy(absl::string_view tensor, absl::Span<double> elems) const;
};

// The file's beginning; the tensors' bytes follow it in their order.
//   REQUIRES: each view has as many bytes as its shape and dtype say.
std::string EncodeSnapshotHead(const Snapshot& snapshot);

struct ParsedSnapshot {
  Snapshot snapshot;  // its tensors look into the bytes that were parsed
  std::string
      sha256;  // in hexadecimal, of the head, which holds those of the tensors: the snapshot's identity
};

// Checks every byte of a whole file.
//   Errors: kDataLoss: torn or damaged, saying where; kUnimplemented: of a later version.
absl::StatusOr<ParsedSnapshot> ParseSnapshot(absl::string_view file);

}  // namespace ddprun
