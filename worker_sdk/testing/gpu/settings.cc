#include "worker_sdk/testing/gpu/settings.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace ddprun::stand_in {
namespace {

std::string Text(const char* name) {
  const char* text = std::getenv((std::string("DDPRUN_STAND_IN_") + name).c_str());
  return text == nullptr ? "" : text;
}

int64_t Number(const char* name, int64_t otherwise) {
  const std::string text = Text(name);
  if (text.empty()) return otherwise;
  char* end = nullptr;
  const int64_t value = std::strtoll(text.c_str(), &end, 10);
  if (*end != '\0') {
    std::fprintf(stderr, "GPU stand-in: DDPRUN_STAND_IN_%s=%s is not a number\n", name, text.c_str());
    std::abort();
  }
  return value;
}

// The kernel's random bytes for this process: all libraries of the process have the same seed. A child of fork has
// another one.
uint64_t RandomSeed() {
  uint32_t bytes = 0;
  std::memcpy(&bytes, reinterpret_cast<const void*>(getauxval(AT_RANDOM)), sizeof bytes);
  return bytes ^ static_cast<uint32_t>(getpid());
}

Settings Read() {
  const Settings defaults;
  Settings s;
  s.seed = static_cast<uint64_t>(Number("SEED", static_cast<int64_t>(RandomSeed())));
  s.max_delay_us = static_cast<int>(Number("DELAY_US", defaults.max_delay_us));
  s.devices = static_cast<int>(Number("DEVICES", defaults.devices));
  s.memory_bytes = static_cast<size_t>(Number("MEMORY_MIB", 1024)) << 20;
  s.driver_version = static_cast<int>(Number("DRIVER_VERSION", 0));
  s.init_error = static_cast<int>(Number("INIT_ERROR", 0));
  s.lost_after = Number("LOST_AFTER", -1);
  s.lost_error = static_cast<int>(Number("LOST_ERROR", defaults.lost_error));
  s.no_memory_at = Number("NO_MEMORY_AT", -1);
  s.no_pinned_memory = Number("NO_PINNED_MEMORY", 0) != 0;
  s.context_errors = Number("CONTEXT_ERRORS", 0) != 0;
  s.free_waits = Number("FREE_WAITS", 1) != 0;
  s.retain_error = static_cast<int>(Number("RETAIN_ERROR", 0));
  s.print_leaks = Number("PRINT_LEAKS", 0) != 0;
  s.nccl_version = static_cast<int>(Number("NCCL_VERSION", 0));
  s.tree_sums = Number("TREE_SUMS", 0) != 0;
  s.silent_deaths = Number("SILENT_DEATHS", 0) != 0;
  s.max_error_delay_ms = static_cast<int>(Number("ERROR_DELAY_MS", defaults.max_error_delay_ms));
  s.cublas_version = static_cast<int>(Number("CUBLAS_VERSION", 0));
  s.hang = Text("HANG");
  s.hang_ms = Number("HANG_MS", defaults.hang_ms);
  s.hang_at = Number("HANG_AT", defaults.hang_at);
  s.fail = Text("FAIL");
  s.fail_with = static_cast<int>(Number("FAIL_WITH", defaults.fail_with));
  s.fail_at = Number("FAIL_AT", defaults.fail_at);
  return s;
}

}  // namespace

bool Settings::Hangs(std::string_view call) const {
  static std::atomic<int64_t> calls = 0;
  return hang == call && ++calls >= hang_at;
}

bool Settings::Fails(std::string_view call) const {
  static std::atomic<int64_t> calls = 0;
  return fail == call && ++calls >= fail_at;
}

const Settings& TheSettings() {
  static const Settings settings = Read();
  return settings;
}

}  // namespace ddprun::stand_in
