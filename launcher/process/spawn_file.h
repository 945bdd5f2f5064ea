// The memory file of a kSpawn: working directory, file, arguments and environment of a worker, in that order,
// each string ended by a NUL.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "launcher/process/warden_protocol.h"
#include "os/unique_fd.h"

namespace ddprun {

// A file without a name, with `text` in it; none, with errno, where it cannot be made.
UniqueFd MemoryFile(const std::string& text);

// Fills the fields of `request` that say how the file is cut.
//   REQUIRES: no string has a NUL in it.
UniqueFd MakeSpawnFile(const std::string& cwd, const std::string& file, const std::vector<std::string>& argv,
                       const std::vector<std::pair<std::string, std::string>>& env,
                       warden_protocol::Request& request);

// The file, cut into the arrays that exec wants, which point into it.
class SpawnStrings {
 public:
  SpawnStrings() = default;
  SpawnStrings(const SpawnStrings&) = delete;
  SpawnStrings& operator=(const SpawnStrings&) = delete;
  ~SpawnStrings();

  // False, with errno, when the file cannot be mapped. Once.
  bool Map(int fd, const warden_protocol::Request& request);

  const char* cwd() const { return cwd_; }
  const char* file() const { return file_; }
  char* const* argv() const { return argv_.data(); }
  char* const* env() const { return env_.data(); }

 private:
  char* map_ = nullptr;
  size_t size_ = 0;
  const char* cwd_ = nullptr;
  const char* file_ = nullptr;
  std::vector<char*> argv_;
  std::vector<char*> env_;
};

}  // namespace ddprun
