// Validation of requests to a store, over c10d and gRPC. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/c10d_parser.h"

namespace ddprun {

// Size limit for a gRPC message in either direction: the largest allowed request plus protobuf's overhead.
inline constexpr int kMaxStoreMessageBytes = 65 << 20;

// Checks the parts of one request in sequence. The limits are those of c10d connections, which are closed if
// a request exceeds them.
//   Errors: kInvalidArgument with the request's name, the defect and what is allowed; the first error is
//           kept.
class StoreRequestCheck {
 public:
  // `name`: the request's name, for messages; must outlive this object.
  explicit StoreRequestCheck(absl::string_view name, const c10d::ParserLimits& limits = {})
      : name_(name), limits_(limits) {}

  StoreRequestCheck& Key(absl::string_view key);  // or a queue name
  StoreRequestCheck& Value(absl::string_view value);
  StoreRequestCheck& NumItems(size_t num_items);  // the size of a list; call before checking its items
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
