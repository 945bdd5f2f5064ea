#include "proto/store_request.h"

#include "absl/strings/str_cat.h"

namespace ddprun {

StoreRequestCheck& StoreRequestCheck::Key(absl::string_view key) {
  if (status_.ok() && key.empty()) {
    status_ = absl::InvalidArgumentError(absl::StrCat(name_, ": a key is empty; keys have at least 1 byte"));
  }
  Count("key", key, limits_.max_key_bytes);
  return *this;
}

StoreRequestCheck& StoreRequestCheck::Value(absl::string_view value) {
  Count("value", value, limits_.max_value_bytes);
  return *this;
}

StoreRequestCheck& StoreRequestCheck::NumItems(size_t num_items) {
  if (status_.ok() && num_items > limits_.max_list_items) {
    status_ = absl::InvalidArgumentError(absl::StrCat(
        name_, ": the request has ", num_items, " keys; at most ", limits_.max_list_items, " are allowed"));
  }
  bytes_ += sizeof(uint64_t);
  return *this;
}

StoreRequestCheck& StoreRequestCheck::WorldSize(int64_t world_size) {
  if (status_.ok() && world_size < 1) {
    status_ = absl::InvalidArgumentError(
        absl::StrCat(name_, ": the world size is ", world_size, "; it must be at least 1"));
  }
  bytes_ += sizeof(uint64_t);
  return *this;
}

void StoreRequestCheck::Count(absl::string_view what, absl::string_view bytes, uint64_t max_bytes) {
  bytes_ += sizeof(uint64_t) + bytes.size();
  if (!status_.ok()) return;
  if (bytes.size() > max_bytes) {
    status_ = absl::InvalidArgumentError(absl::StrCat(name_, ": a ", what, " has ", bytes.size(),
                                                      " bytes; at most ", max_bytes, " are allowed"));
  } else if (bytes_ > limits_.max_request_bytes) {
    status_ = absl::InvalidArgumentError(
        absl::StrCat(name_, ": the request has more than ", limits_.max_request_bytes, " bytes"));
  }
}

}  // namespace ddprun
