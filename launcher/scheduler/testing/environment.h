// An environment for tests.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "launcher/cli/options.h"

namespace ddprun {

using Environment = std::map<std::string, std::string>;

// The result owns a copy of `environment`.
inline GetEnv GetEnvOf(const Environment& environment) {
  return [environment](absl::string_view name) -> std::optional<std::string> {
    const auto at = environment.find(std::string(name));
    return at == environment.end() ? std::nullopt : std::optional(at->second);
  };
}

}  // namespace ddprun
