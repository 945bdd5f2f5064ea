// A store in a directory. The processes of a test use it instead of the worker store.
#pragma once

#include <string>
#include <string_view>

#include "ddprun/status.h"
#include "worker_sdk/store/store.h"

namespace ddprun {

// Each key is a file, which Set creates atomically by rename. Get waits with inotify.
class FakeFileStore : public Store {
 public:
  // REQUIRES: `dir` exists.
  explicit FakeFileStore(std::string dir) : dir_(std::move(dir)) {}

  Status Set(std::string_view key, std::string_view value) override;
  StatusOr<std::string> Get(std::string_view key, Duration timeout) override;

 private:
  std::string PathOf(std::string_view key) const;

  const std::string dir_;
};

}  // namespace ddprun
