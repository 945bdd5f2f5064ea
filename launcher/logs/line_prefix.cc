#include "launcher/logs/line_prefix.h"

#include "absl/strings/str_cat.h"
#include "launcher/config/safe_substitute.h"

namespace ddprun {

std::string FormatPrefix(absl::string_view prefix_template, const LineOrigin& origin) {
  constexpr absl::string_view kDefault = "[${role_name}${local_rank}]:";
  return SafeSubstitute(prefix_template.empty() ? kDefault : prefix_template,
                        {{"role_name", origin.role},
                         {"local_rank", absl::StrCat(origin.local_rank.value())},
                         {"rank", absl::StrCat(origin.rank.value())},
                         {"hostname", origin.hostname}});
}

}  // namespace ddprun
