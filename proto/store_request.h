// What a request to a store may bring, over either of its faces. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/c10d_parser.h"

namespace ddprun {

// Of a message over gRPC, either way: the largest request that is allowed, and what protobuf adds to it.
inline constexpr int kMaxStoreMessageBytes = 65 << 20;

// Looks at the parts of one request, one after the other. A c10d connection would be closed for what is
// refused here.
//   Errors: kInvalidArgument, naming the request, what is wrong with it and what is allowed; the first
//           stands.
class StoreRequestCheck {
 public:
  // `name`: of the request, for messages; it must outlive this.
  explicit StoreRequestCheck(absl::string_view name, const c10d::ParserLimits& limits = {})
      : name_(name), limits_(limits) {}

  StoreRequestCheck& Key(absl::string_view key);  // or the name of a queue
  StoreRequestCheck& Value(absl::string_view value);
  StoreRequestCheck& NumItems(size_t num_items);  // of a list; its items follow
  StoreRequestCheck& WorldSize(int64_t world_size);
  const absl::Status& status() const { return status_; }

 private:
  void Count(absl::string_view what, absl::string_view bytes, uint64_t max_bytes);

  const absl::string_view name_;
  const c10d::ParserLimits limits_;
  uint64_t bytes_ = 1;  // of the request as c10d has it
  absl::Status status_;
};

}  // namespace ddprun
