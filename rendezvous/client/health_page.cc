#include "rendezvous/client/health_page.h"

#include <string>

#include "absl/status/statusor.h"
#include "boost/json/parse.hpp"
#include "boost/system/error_code.hpp"

namespace ddprun {

HealthPage ParseHealthPage(absl::string_view body) {
  HealthPage page;
  boost::system::error_code error;
  const boost::json::value json = boost::json::parse({body.data(), body.size()}, error);
  if (error || !json.is_object()) return page;
  const auto get = [&](const char* name) { return json.get_object().if_contains(name); };
  const auto is_true = [&](const char* name) { return get(name) != nullptr && *get(name) == true; };
  page.is_ddprun = get("service") != nullptr && *get("service") == "ddprun";
  if (const auto* const protocol = get("protocol"); protocol != nullptr && protocol->is_int64())
    page.protocol = protocol->get_int64();
  page.has_job = is_true("has_job");
  page.takes_any_job = is_true("takes_any_job");
  if (const auto* const leader = get("leader"); leader != nullptr && leader->is_string()) {
    const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(std::string(leader->get_string()), -1);
    if (endpoint.ok()) page.leader = *endpoint;
  }
  return page;
}

}  // namespace ddprun
