// --rdzv-conf: how long nodes wait for each other.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/time.h"

namespace ddprun {

struct RdzvConf {
  Duration join_timeout = seconds(600);  // for the minimum of nodes to come together
  // For more of them, once the minimum is there; none: 30 s, or little where this node chose the endpoint
  // itself.
  std::optional<Duration> last_call_timeout;
  Duration read_timeout = seconds(60);  // for finding the coordinator
  // Silence after which a node counts as lost. Longer than any pause of a healthy node, shorter than the wait
  // that a loss may cost.
  Duration lease = milliseconds(5000);
  std::optional<bool> is_host;      // this node hosts, or does not; none: the endpoint's name tells
  std::optional<Duration> timeout;  // static: for all nodes to come together; none: join_timeout
  bool operator==(const RdzvConf&) const = default;
};

// Reads "key=value,key=value"; the empty text gives the defaults above. More than a year is a year.
//   `warnings` gets a sentence for each unknown key, and for each wrong value of a key that has no effect
//   with this backend. torchrun ignores unknown keys in silence. Errors: kInvalidArgument: an entry that is
//   no key=value; a wrong value of a key that has an effect.
absl::StatusOr<RdzvConf> ParseRdzvConf(absl::string_view text, bool is_static,
                                       std::vector<std::string>& warnings);

}  // namespace ddprun
