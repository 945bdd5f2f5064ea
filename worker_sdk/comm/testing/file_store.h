// A store in a directory, which takes the place of the worker store for the processes of one test.
#pragma once

#include <string>

#include "worker_sdk/comm/store.h"

namespace ddprun {

// Each key is a file that appears atomically, by rename. Get blocks in inotify.
class FakeFileStore : public Store {
 public:
  // REQUIRES: `dir` exists.
  explicit FakeFileStore(std::string dir) : dir_(std::move(dir)) {}

  absl::Status Set(absl::string_view key, absl::string_view value) override;
  absl::StatusOr<std::string> Get(absl::string_view key, Duration timeout) override;

 private:
  std::string PathOf(absl::string_view key) const;

  const std::string dir_;
};

}  // namespace ddprun
