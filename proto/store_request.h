// Validation of requests to a store, over c10d and gRPC. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/c10d_parser.h"

namespace ddprun {

// Limit of a gRPC message in either direction: the largest allowed request plus the overhead of protobuf.
inline constexpr int kMaxStoreMessageBytes = 65 << 20;

// Checks the parts of one request in sequence, by the limits for which a c10d connection is closed.
//   Errors: kInvalidArgument with the request, the defect and what is allowed; the first error is kept.
class StoreRequestCheck {
 public:
  // `name`: of the request, for messages; must outlive this.
  explicit StoreRequestCheck(absl::string_view name, const c10d::ParserLimits& limits = {})
      : name_(name), limits_(limits) {}

  StoreRequestCheck& Key(absl::string_view key);  // or the name of a queue
  StoreRequestCheck& Value(absl::string_view value);
  StoreRequestCheck& NumItems(size_t num_items);  // of a list; call before its items
  StoreRequestCheck& WorldSize(int64_t world_size);
  const absl::Status& status() const { return status_; }

 private:
  void Count(absl::string_view what, absl::string_view bytes, uint64_t max_bytes);

  const absl::string_view name_;
  const c10d::ParserLimits limits_;
  uint64_t bytes_ = 1;  // size of the request on a c10d connection
  absl::Status status_;
};

}  // namespace ddprun
