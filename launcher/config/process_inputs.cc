#include "launcher/config/process_inputs.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "base/time.h"
#include "base/uuid.h"
#include "launcher/cli/read_within.h"
#include "launcher/config/gpus.h"

namespace ddprun {
namespace {

// Reads a file or a pipe, as in --config <(...). The size limit exceeds the parser's limit, so that the
// parser reports files that are too long.
absl::StatusOr<std::string> ReadConfiguration(const std::string& path) {
  return ReadWithin(path, 1 << 20, seconds(10));
}

}  // namespace

ProcessInputs InputsOfThisProcess(std::function<void(absl::string_view)> say) {
  ProcessInputs real;
  std::error_code ignored;
  real.cwd = std::filesystem::current_path(ignored).string();
  real.ddprun_dir = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path().string();
  real.get_env = [](absl::string_view name) -> std::optional<std::string> {
    const char* value = getenv(std::string(name).c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
  real.read_file = ReadConfiguration;
  char host[256] = "";
  if (gethostname(host, sizeof host - 1) == 0) real.host_name = host;
  cpu_set_t cpus;
  real.num_cpus = sched_getaffinity(0, sizeof cpus, &cpus) == 0
                      ? CPU_COUNT(&cpus)
                      : static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  real.count_gpus = [say = std::move(say)](const std::optional<std::string>& visible, bool narrowed) {
    return CountGpus(visible, narrowed, say);
  };
  real.make_uuid = RandomUuid;
  return real;
}

}  // namespace ddprun
