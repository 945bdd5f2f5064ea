// Decodes arbitrary bytes as a packet between a worker and its agent.
//
// Invariants: no crash; a packet is at most one kind of message; a decoded message is in range, and encoding
// it gives a packet that decodes to the same message.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/worker_message.h"

namespace {

void Check(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "fuzz: broken invariant: %s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ddprun;
  const std::string_view packet(reinterpret_cast<const char*>(data), size);
  const std::optional<WorkerReport> report = DecodeWorkerReport(packet);
  const std::optional<AgentRequest> request = DecodeAgentRequest(packet);
  const std::optional<WorkerSurvival> survival = DecodeWorkerSurvival(packet);
  const std::optional<RoundOffer> offer = DecodeRoundOffer(packet);
  const std::optional<WorkerPage> page = DecodeWorkerPage(packet);
  const std::optional<int> version = OtherVersion(packet);
  Check(report.has_value() + request.has_value() + survival.has_value() + offer.has_value() +
                page.has_value() + version.has_value() <=
            1,
        "a packet has one kind");
  if (version)
    Check(*version != kWorkerMessageVersion && *version >= 0 && *version < 256, "a version is a byte");
  if (report) {
    Check(report->local_rank.value() >= 0 && report->local_rank.value() < 1 << 16,
          "a local rank is in range");
    Check(report->round.value() >= 0, "a round is not negative");
    Check(report->message.size() <= kMaxReportTextBytes, "a text is bounded");
    Check(report == DecodeWorkerReport(Encode(*report)), "a report round-trips");
    (void)NameOf(report->phase);
  }
  if (request) Check(request == DecodeAgentRequest(Encode(*request)), "a request round-trips");
  if (survival) {
    Check(survival->message.size() <= kMaxReportTextBytes, "a text is bounded");
    Check(survival == DecodeWorkerSurvival(Encode(*survival)), "a survival round-trips");
  }
  if (offer) {
    Check(offer->rank.value() >= 0 && offer->rank.value() < offer->world_size, "a rank is in its world");
    Check(offer == DecodeRoundOffer(Encode(*offer)), "an offer round-trips");
  }
  if (page) {
    Check(page->local_rank.value() >= 0 && page->local_rank.value() < 1 << 16, "a local rank is in range");
    Check(page == DecodeWorkerPage(Encode(*page)), "a page round-trips");
  }
  return 0;
}
