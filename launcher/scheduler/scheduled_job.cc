#include "launcher/scheduler/scheduled_job.h"

#include <cstdint>

namespace ddprun {
namespace {

constexpr int kNumPorts = 8;
constexpr uint64_t kFirstPort = 20000,
                   kPortRange = 9000;  // below torchrun's default ports and the ephemeral ones

}  // namespace

std::vector<int> CandidatePorts(absl::string_view job_id) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a: equal on all hosts and in all releases
  for (const char c : job_id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::vector<int> ports;
  for (int i = 0; i < kNumPorts; ++i) {
    // The distance keeps the ports of jobs with neighbouring hashes apart.
    ports.push_back(static_cast<int>(kFirstPort + (hash + static_cast<uint64_t>(i) * 1009) % kPortRange));
  }
  return ports;
}

}  // namespace ddprun
