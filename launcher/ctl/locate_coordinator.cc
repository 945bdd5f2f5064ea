#include "launcher/ctl/locate_coordinator.h"

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "boost/json/parse.hpp"
#include "boost/system/error_code.hpp"
#include "launcher/ctl/coordinator_page.h"

namespace ddprun {
namespace {

constexpr char kPath[] = "/healthz";

// The endpoint of the coordinator, if the page is of an agent that knows that another one coordinates the job.
std::optional<Endpoint> OtherOf(const CoordinatorPage& page) {
  boost::system::error_code error;
  const boost::json::value json = boost::json::parse(page.body, error);
  if (error || !json.is_object()) return std::nullopt;
  const boost::json::value* const leader = json.get_object().if_contains("leader");
  if (leader == nullptr || !leader->is_string()) return std::nullopt;
  absl::StatusOr<Endpoint> endpoint = ParseEndpoint(std::string(leader->get_string()), -1);
  if (!endpoint.ok()) return std::nullopt;
  return *endpoint;
}

}  // namespace

absl::StatusOr<Endpoint> LocateCoordinator(const std::vector<Endpoint>& endpoints, Duration timeout) {
  absl::Status failed;
  for (const Endpoint& endpoint : endpoints) {
    const absl::StatusOr<CoordinatorPage> page = GetCoordinatorPage(endpoint, kPath, timeout);
    if (!page.ok()) {
      failed.Update(page.status());
      continue;
    }
    const std::optional<Endpoint> other = OtherOf(*page);
    if (!other) return endpoint;
    const absl::StatusOr<CoordinatorPage> there = GetCoordinatorPage(*other, kPath, timeout);
    if (there.ok()) return *other;
    failed.Update(there.status());
  }
  return failed;
}

}  // namespace ddprun
