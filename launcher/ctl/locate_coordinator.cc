#include "launcher/ctl/locate_coordinator.h"

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "launcher/ctl/coordinator_page.h"
#include "net/http_client.h"
#include "rendezvous/client/health_page.h"

namespace ddprun {

absl::StatusOr<Endpoint> LocateCoordinator(const std::vector<Endpoint>& endpoints, const std::string& job,
                                           Duration timeout) {
  const std::string path = absl::StrCat("/healthz?job=", QueryEscaped(job));
  absl::Status failed;
  std::optional<Endpoint> witness;
  for (const Endpoint& endpoint : endpoints) {
    const absl::StatusOr<CoordinatorPage> page = GetCoordinatorPage(endpoint, path, timeout);
    if (!page.ok()) {
      failed.Update(page.status());
      continue;
    }
    const HealthPage health = ParseHealthPage(page->body);
    if (health.leader) {
      const absl::StatusOr<CoordinatorPage> there = GetCoordinatorPage(*health.leader, path, timeout);
      if (there.ok()) return *health.leader;
      failed.Update(there.status());
      continue;
    }
    if (health.has_job || !health.takes_any_job) return endpoint;
    if (!witness) witness = endpoint;  // or a coordinator without this job
  }
  if (witness) return *witness;
  return failed;
}

}  // namespace ddprun
