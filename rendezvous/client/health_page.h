// What a coordinator's page /healthz says.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "net/endpoint.h"

namespace ddprun {

struct HealthPage {
  bool is_ddprun = false;  // the server is a coordinator
  std::optional<int64_t> protocol = {};
  bool has_job = false;  // the job that the request names
  bool takes_any_job = false;
  std::optional<Endpoint> leader = {};  // the coordinator of the job in another process, if it is known
};

// Fields that are missing or malformed have their defaults.
HealthPage ParseHealthPage(absl::string_view body);

}  // namespace ddprun
