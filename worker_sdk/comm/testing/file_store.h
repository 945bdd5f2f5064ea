// A store in a directory, used by the processes of one test instead of the worker store.
#pragma once

#include <string>

#include "worker_sdk/comm/store.h"

namespace ddprun {

// Each key is a file, created atomically by rename. Get waits with inotify.
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
