// Which variables of the starter's environment the agents of --hosts get.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace ddprun {

// True unless the variable describes the starter's machine, login session, terminal or scheduler rather than the job.
// docs/schedulers.md lists the variables that are not sent.
bool IsSent(absl::string_view variable);

// Returns the variables of `environ` that are sent.
std::vector<std::pair<std::string, std::string>> SentEnvironment(const char* const* environment);

}  // namespace ddprun
