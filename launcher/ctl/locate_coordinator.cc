#include "launcher/ctl/locate_coordinator.h"

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "boost/json/parse.hpp"
#include "boost/system/error_code.hpp"
#include "launcher/ctl/coordinator_page.h"
#include "net/http_client.h"

namespace ddprun {
namespace {

// What the page says about the coordinator of the job.
struct Answer {
  std::optional<Endpoint> other = {};  // another process coordinates the job
  bool may_be_witness = false;         // the process coordinates any job, but not this one
};

Answer Read(const CoordinatorPage& page) {
  boost::system::error_code error;
  const boost::json::value json = boost::json::parse(page.body, error);
  if (error || !json.is_object()) return {};
  const auto get = [&](const char* name) { return json.get_object().if_contains(name); };
  const auto is_true = [&](const char* name) { return get(name) != nullptr && *get(name) == true; };
  Answer answer{.may_be_witness = is_true("takes_any_job") && !is_true("has_job")};
  if (const auto* const leader = get("leader"); leader != nullptr && leader->is_string()) {
    const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(std::string(leader->get_string()), -1);
    if (endpoint.ok()) answer.other = *endpoint;
  }
  return answer;
}

}  // namespace

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
    const Answer answer = Read(*page);
    if (!answer.other && !answer.may_be_witness) return endpoint;
    if (!answer.other) {
      if (!witness) witness = endpoint;
      continue;
    }
    const absl::StatusOr<CoordinatorPage> there = GetCoordinatorPage(*answer.other, path, timeout);
    if (there.ok()) return *answer.other;
    failed.Update(there.status());
  }
  if (witness) return *witness;
  return failed;
}

}  // namespace ddprun
