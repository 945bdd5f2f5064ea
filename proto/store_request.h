// Validation of requests to a store. Both the gRPC server and ddprun's clients use it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/c10d_parser.h"

namespace ddprun {

// Maximum size of a gRPC message in either direction: the largest request or reply plus protobuf's overhead.
inline constexpr int kMaxStoreMessageBytes = 65 << 20;

// Checks one request part by part. The limits are those of c10d requests, because a c10d server closes the
// connection of a request that exceeds a limit.
//   Errors: kInvalidArgument: a part is invalid. status() keeps the first error. Its message names the
//           request, the defect and the limit.
class StoreRequestCheck {
 public:
  // `name` is the request's name in error messages. The string must outlive this object.
  explicit StoreRequestCheck(absl::string_view name, const c10d::ParserLimits& limits = {})
      : name_(name), limits_(limits) {}

  // Checks a key or the name of a queue.
  StoreRequestCheck& Key(absl::string_view key);
  StoreRequestCheck& Value(absl::string_view value);
  // Checks the number of items in a list. Must be called before the items are checked.
  StoreRequestCheck& NumItems(size_t num_items);
  StoreRequestCheck& WorldSize(int64_t world_size);
  const absl::Status& status() const { return status_; }

 private:
  void Count(absl::string_view what, absl::string_view bytes, uint64_t max_bytes);

  const absl::string_view name_;
  const c10d::ParserLimits limits_;
  uint64_t bytes_ = 1;  // size of the checked parts in the c10d encoding
  absl::Status status_;
};

}  // namespace ddprun
