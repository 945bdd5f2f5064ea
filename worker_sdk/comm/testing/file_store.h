// A store in a directory: what a worker store is to a job, for processes of one test.
#pragma once

#include <string>

#include "worker_sdk/comm/store.h"

namespace ddprun {

// A key is a file; it appears whole, by rename. Get sleeps in inotify.
class FakeFileStore : public Store {
 public:
  // `dir` must exist.
  explicit FakeFileStore(std::string dir) : dir_(std::move(dir)) {}

  absl::Status Set(absl::string_view key, absl::string_view value) override;
  absl::StatusOr<std::string> Get(absl::string_view key, Duration timeout) override;

 private:
  std::string PathOf(absl::string_view key) const;

  const std::string dir_;
};

}  // namespace ddprun
