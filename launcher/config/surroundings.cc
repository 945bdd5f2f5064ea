#include "launcher/config/surroundings.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "absl/status/status.h"
#include "base/uuid.h"
#include "launcher/config/gpu_count.h"

namespace ddprun {
namespace {

// A pipe will do, too: --config <(...). What never ends is cut off, and refused for its length.
absl::StatusOr<std::string> ReadWhole(const std::string& path) {
  constexpr size_t kMostBytes = 1 << 20;
  struct Close {
    void operator()(FILE* file) const { fclose(file); }
  };
  const std::unique_ptr<FILE, Close> file(fopen(path.c_str(), "re"));
  if (file == nullptr) return absl::NotFoundError(strerror(errno));
  std::string text(kMostBytes, '\0');
  text.resize(fread(text.data(), 1, text.size(), file.get()));
  if (ferror(file.get())) return absl::UnavailableError(strerror(errno));
  return text;
}

}  // namespace

Surroundings RealSurroundings() {
  Surroundings real;
  std::error_code ignored;
  real.cwd = std::filesystem::current_path(ignored).string();
  real.ddprun_dir = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path().string();
  real.get_env = [](absl::string_view name) -> std::optional<std::string> {
    const char* value = getenv(std::string(name).c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
  real.read_file = ReadWhole;
  cpu_set_t cpus;
  real.num_cpus = sched_getaffinity(0, sizeof cpus, &cpus) == 0
                      ? CPU_COUNT(&cpus)
                      : static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  real.count_gpus = CountGpus;
  real.make_uuid = RandomUuid;
  return real;
}

}  // namespace ddprun
