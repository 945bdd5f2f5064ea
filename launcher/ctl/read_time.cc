#include "launcher/ctl/read_time.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "boost/program_options.hpp"

namespace ddprun {

Duration ReadTime(const std::string& option, const std::string& text) {
  absl::Duration time;
  const bool valid = (absl::ParseDuration(text, &time) || absl::ParseDuration(text + "s", &time)) &&
                     time > absl::ZeroDuration() && time <= absl::Hours(24 * 365);
  if (!valid) {
    throw boost::program_options::error(
        absl::StrCat("--", option, "=", text, ": expected a time of more than 0, such as 90s or 2m"));
  }
  return absl::ToChronoNanoseconds(time);
}

}  // namespace ddprun
