#include "base/temporary_directory.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace ddprun {

std::string TemporaryDirectory() {
  for (const char* const name : {"TMPDIR", "TEMP", "TMP"}) {
    const char* const value = getenv(name);
    if (value == nullptr || access(value, W_OK | X_OK) != 0) continue;
    std::error_code ignored;
    if (std::filesystem::is_directory(value, ignored))
      return std::filesystem::absolute(value, ignored).string();
  }
  return "/tmp";
}

}  // namespace ddprun
